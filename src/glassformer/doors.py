"""The front door: what is called how at the top of the package, and which room it comes from.

This is the one list. `glassformer.NAME` opens the door of that name and imports its room only; what
is OPENED takes what people type (see face.py). A type checker reads the lines below the tables, and
a test holds the two together.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

AS_THEY_ARE = {
    "GlassformerError": ".errors", "Config": ".model", "Labels": ".model", "Model": ".model",
    "Vocabulary": ".vocabulary", "Task": ".tasks", "Recipe": ".training", "Training": ".training",
    "Verdict": ".verification", "fit": ".face", "train": ".face", "ablations": ".face",
}  # fmt: skip
OPENED = {
    "load": ".refs", "load_task": ".refs", "save": ".checkpoint", "run": ".runs",
    "decode": ".decoding", "forward": ".face", "record": ".tap", "on": ".tap", "hook_names": ".tap",
    "count": ".counting", "verify": ".verification", "recheck": ".verification",
    "prove": ".proof.given:prove_",
    "explain": ".lens.explain", "inspect": ".lens.inspect", "view": ".lens.inspect",
    "compare": ".lens.compare", "ablate": ".lens.interventions.ablate",
    "patch": ".lens.interventions.patch", "interchange": ".lens.interventions.patch",
    "attribute": ".lens.interventions.attribute", "truth": ".ground_truth.edges",
    "disguise": ".ground_truth.disguise", "export": ".bridges.given:export_",
    "report": ".errands.pages",
    "open": ".errands.servers:open_", "board": ".errands.boards", "sweep": ".errands.sweeps",
    "compile": ".lang.given:compile_", "list": ".face:list_", "check": ".puzzles.given:check_",
    "claims": ".published", "tour": ".walk",
    "program": ".registry", "task": ".errands.tasks", "blueprint": ".registry",
}  # fmt: skip
OPTIONS = {"verify": "check"}  # the function of the same room whose keywords its **options are

if TYPE_CHECKING:
    from . import checkpoint, counting, decoding, face, published, refs, registry, runs, tap, walk
    from .bridges.given import export_ as _export
    from .errands.boards import board as _board
    from .errands.pages import report as _report
    from .errands.servers import open_ as _open
    from .errands.sweeps import sweep as _sweep
    from .errands.tasks import task as _task
    from .errors import GlassformerError as GlassformerError
    from .face import ablations as ablations
    from .face import fit as fit
    from .face import opened as _opened
    from .face import train as train
    from .ground_truth.disguise import disguise as _disguise
    from .ground_truth.edges import truth as _truth
    from .lang.given import compile_ as _compile
    from .lens.compare import compare as _compare
    from .lens.explain import explain as _explain
    from .lens.inspect import inspect as _inspect
    from .lens.inspect import view as _view
    from .lens.interventions.ablate import ablate as _ablate
    from .lens.interventions.attribute import attribute as _attribute
    from .lens.interventions.patch import interchange as _interchange
    from .lens.interventions.patch import patch as _patch
    from .model import Config as Config
    from .model import Labels as Labels
    from .model import Model as Model
    from .proof.given import prove_ as _prove
    from .puzzles.given import check_ as _check
    from .tasks import Task as Task
    from .training import Recipe as Recipe
    from .training import Training as Training
    from .verification import Verdict as Verdict
    from .verification import recheck as _recheck
    from .verification import verify as _verify
    from .vocabulary import Vocabulary as Vocabulary

    load, load_task, save = _opened(refs.load), _opened(refs.load_task), _opened(checkpoint.save)
    run, decode, forward = _opened(runs.run), _opened(decoding.decode), _opened(face.forward)
    record, on, hook_names = _opened(tap.record), _opened(tap.on), _opened(tap.hook_names)
    count, verify, recheck = _opened(counting.count), _opened(_verify), _opened(_recheck)
    prove, truth, disguise = _opened(_prove), _opened(_truth), _opened(_disguise)
    explain, inspect, view = _opened(_explain), _opened(_inspect), _opened(_view)
    compare, ablate, patch = _opened(_compare), _opened(_ablate), _opened(_patch)
    interchange, attribute = _opened(_interchange), _opened(_attribute)
    export, report, open = _opened(_export), _opened(_report), _opened(_open)
    board, sweep, claims = _opened(_board), _opened(_sweep), _opened(published.claims)
    compile, list, check = _opened(_compile), _opened(face.list_), _opened(_check)
    program, task, tour = _opened(registry.program), _opened(_task), _opened(walk.tour)
    blueprint = _opened(registry.blueprint)


def __getattr__(name: str) -> Any:
    """The thing behind a door, which stays open."""
    if name not in AS_THEY_ARE | OPENED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where, _, there = (AS_THEY_ARE | OPENED)[name].partition(":")
    room = import_module(where, __package__)
    thing = getattr(room, there or name)
    if name in OPENED:
        from .face import opened

        options = getattr(room, OPTIONS[name]) if name in OPTIONS else None
        thing = opened(thing, options, as_typed=where.startswith(".errands"))
    return globals().setdefault(name, thing)

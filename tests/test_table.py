"""The table: every name of the front door with a ref, a Model, a Path, a text, a wrong type and
nothing. What comes back is a result or a GlassformerError, and nothing else.

TABLE says what each function makes of its first argument, and has a row for every name there is.
Below it, every other argument of every function gets the same six, from the signatures: whatever is
added to the front door is tried without a word here, but for a row and, if it needs something new,
an example of it in GOOD.
"""

import inspect

import pytest

import glassformer as gf
from glassformer import GlassformerError, guided_tour, published_claims, registry, resolve
from glassformer.leaderboard import boards
from glassformer.leaderboard.protocol import BoardVerdict, GroupScore
from glassformer.lens.inspect import VIEWS
from glassformer.server import handle
from glassformer.training.studies import ablation_study
from glassformer.training.studies import sweep as sweeps
from glassformer.utils.errors import ErrorList

REF = "addition:digits=1"
GIVEN = ("ref", "Model", "Path", "text", "wrong", "empty")
TABLE = """
                     ref  Model  Path  text  wrong  empty
    ablate           yes  yes    yes   -     -      -
    ablation_study   yes  -      -     -     -      -      a task
    adderboard       yes  yes    yes   -     -      -      a model, or None: the table of adders
    attribute        yes  yes    yes   -     -      -
    check_puzzle     -    -      -     -     -      -      a level: see `level` in GOOD
    check_task       yes  yes    -     -     -      -      a task to try
    claims           -    -      -     -     -      yes    names, or how they start; none: all
    compare          yes  yes    yes   -     -      -
    compile          -    -      -     -     -      -      a source: see `source` in GOOD
    count            yes  yes    yes   -     -      -
    decode           yes  yes    yes   -     -      -
    explain          yes  yes    yes   -     -      -
    export           yes  yes    yes   -     -      -
    fit              yes  -      -     -     -      -      a task
    forward          -    -      -     -     -      -      a Config
    ground_truth     yes  yes    yes   -     -      -
    hook             yes  yes    yes   -     -      -
    hook_names       yes  yes    yes   -     -      -
    inspect          yes  yes    yes   -     -      -
    interchange      yes  yes    yes   -     -      -
    list             -    -      -     -     -      -      programs, tasks, …
    load             yes  -      yes   -     -      -
    load_task        yes  yes    -     -     -      -
    obfuscate        yes  yes    yes   -     -      -
    parametrization  -    -      -     yes   -      -      a name
    patch            yes  yes    yes   -     -      -
    program          -    -      -     yes   -      -      a name
    prove            yes  yes    yes   -     -      -
    recheck          yes  yes    yes   -     -      -
    record           yes  yes    yes   -     -      -
    report           yes  yes    yes   -     -      -
    run              yes  yes    yes   -     -      -
    save             yes  yes    yes   -     -      -
    sizes            yes  yes    yes   -     -      -
    studio           yes  yes    yes   -     -      -
    sweep            -    -      -     -     -      -      a spec
    task             -    -      -     yes   -      -      a name
    tour             -    -      -     -     -      -      the page at its end
    train            yes  -      -     -     -      -      a task
    verify           yes  yes    yes   -     -      -
    view             -    -      -     yes   -      -      a name
    show.attention   yes  yes    yes   -     -      -
    show.heads       yes  yes    yes   -     -      -
    show.matrix      yes  yes    yes   -     -      -
    show.comparison  yes  yes    yes   -     -      -
    show.embeddings  yes  yes    yes   -     -      -
    show.errors      yes  yes    yes   -     -      -
    show.logits      yes  yes    yes   -     -      -
    show.margin      yes  yes    yes   -     -      -
    show.neurons     -    -      -     -     -      -      a model with an MLP: see OF
    show.steps       yes  yes    yes   -     -      -
    show.stream      yes  yes    yes   -     -      -
    show.training    -    -      -     -     -      -      a Training
    show.view        yes  yes    yes   -     -      -
    Config           -    -      -     -     -      -      a number of tokens
    Labels           -    -      -     -     -      -      a table of slots
    Model            -    -      -     -     -      -      a Config
    Recipe           yes  -      -     yes   -      yes    any name on one line
    Training         -    yes    -     -     -      -      what fit gives back, made by hand
    Verdict          yes  -      -     yes   -      yes    what verify gives back, made by hand
    Vocabulary       -    -      -     -     -      yes    texts, or none
"""
ROWS = {words[0]: words[1:7] for line in TABLE.splitlines()[2:] if (words := line.split())}
# Not called by hand: the base of one's own class, and what is raised.
BASES = {"Task", "GlassformerError"}

# What an argument may be, by its name: the others of a call, while one is tried.
MODEL = gf.load(REF)
GOOD = {
    "model": REF, "models": REF, "a": REF, "b": REF, "task": REF, "ref": REF, "tokens": "4+8",
    "clean": "4+8", "corrupted": "1+2", "component": "head 0.0", "names": "head 0.0",
    "name": "head 0.0",
    "to": "torch", "table": {"hook_embed": abs}, "steps": 1, "path": "x.safetensors",
    "source": "tokens = [*'ab']; length = 3; emit = first(token, default='a')",
    "config": MODEL.config, "weights": MODEL.weights,
    "vocabulary": MODEL.vocabulary, "d_vocab": 3, "n_ctx": 3, "d_model": 2, "seed": 0,
    "dtype": "float64", "level": "traffic-light", "solution": "tokens:", "domain": 1,
    "exhaustive": True, "looked_at": 1, "checked": 1, "wrong": 0,
    "worst_margin": 1.0, "seconds": 1.0, "accuracy": 1.0, "status": "done",
}  # fmt: skip
SHORT = gf.Recipe(steps=1, evaluate_every=1, train_rows=9, test_rows=9, d_model=4, d_mlp=4)
TRAINED = gf.Training(MODEL, SHORT, 0, 1, 1.0, 1.0, "done", [
    {"step": 1, "loss": 1.0, "accuracy": 1.0, "digits": [1.0, 1.0], "seconds": 0.1}
])  # fmt: skip
OF = {  # where a function means something else by it, or would take long
    "list": {"kind": "tasks"}, "report": {"out": "x.html", "rows": 3}, "export": {"out": "x.py"},
    "fit": {"recipe": SHORT}, "train": {"recipe": SHORT}, "inspect": {"only": "heads"},
    "forward": {"tokens": [[1, 2]]}, "Vocabulary": {"tokens": [*"ab"]}, "run": {"text": "4+8"},
    "compare": {"rows": [[4, 8]]}, "Training": {"model": MODEL, "recipe": SHORT},
    "ablation_study": {"recipe": SHORT, "only": "one-layer", "seeds": [0]},
    "tour": {"page": "x.html"},
    "claims": {"names": "booklet-2.4-parameters"}, "recheck": {"verdict": gf.verify(REF)},
    "sweep": {"spec": "x.toml"}, "show.training": {"trained": TRAINED},
    "show.view": {"name": "shares"}, "show.matrix": {"name": "embed.W_E"},
    "show.comparison": {"b": MODEL},
    **{f"show.{name}": {"text": "4+8"} for name in
       ("attention", "steps", "stream", "logits", "margin")},
    "obfuscate": {"rotate": False},
    "show.neurons": {"model": "addition:digits=1,order=ones", "text": "4+8"},
    **{name: {"name": "mine"} for name in ("program", "task", "parametrization", "view")},
}  # fmt: skip


def doors() -> dict[str, object]:
    by_name = {name: getattr(gf, name) for name in {*gf.__all__, "list", "compile"} - BASES}
    return by_name | {
        f"show.{name}": thing for name, thing in vars(gf.show).items()
        if inspect.isfunction(thing) and thing.__module__ == "glassformer.plotting.api"
    }  # fmt: skip


def parameters(name: str) -> dict[str, inspect.Parameter]:
    result = inspect.signature(doors()[name]).parameters
    return {n: p for n, p in result.items() if p.kind is not p.VAR_KEYWORD}


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    """The columns; the last two in several ways."""
    path = gf.save(MODEL, tmp_path_factory.mktemp("table") / "a.safetensors")
    return {
        "ref": [REF], "Model": [MODEL], "Path": [path], "text": ["nonsense"],
        "wrong": [3.5, object(), b"x"], "empty": ["", []],
    }  # fmt: skip


@pytest.fixture
def apart(tmp_path, monkeypatch):
    """A folder of its own; what a call registers is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    for kind in list(registry.REGISTRY):  # with all that is there: a module registers once
        monkeypatch.setitem(registry.REGISTRY, kind, dict(registry.entries(kind)))
    for name in list(VIEWS):
        monkeypatch.setitem(VIEWS, name, VIEWS[name])
    _short(monkeypatch)
    (tmp_path / "x.toml").write_text('task = "addition:digits=1"\nrecipe = "fast"\n')


def _short(monkeypatch):
    """Replace long runs: one claim is measured, sweeps lose their jobs, and ablations and the
    tour do nothing.
    """
    claims = {"booklet-2.4-parameters": published_claims.ledger()["booklet-2.4-parameters"]}
    monkeypatch.setattr(published_claims, "ledger", lambda: claims)
    monkeypatch.setattr(ablation_study, "train_ablations", lambda *_: iter(()))
    monkeypatch.setattr(sweeps, "train_jobs", lambda jobs, *_: (job.lost("a test") for job in jobs))
    result = BoardVerdict("0" * 64, GroupScore(10, 10), GroupScore(5, 5))
    monkeypatch.setattr(boards, "run_protocol", lambda *_, **__: iter([result]))
    monkeypatch.setattr(boards, "table_entries", lambda more, *_: more)
    for part in ("verify_programs", "measure_claims", "prove_adders", "compile_sort"):
        monkeypatch.setattr(guided_tour, part, lambda out: 0)
    for part in (
        "explain_token",
        "print_text_program",
        "prove_longer_adder",
        "write_report",
        "write_walkthroughs",
    ):
        monkeypatch.setattr(guided_tour, part, lambda *_: None)
    monkeypatch.setattr(guided_tour, "train_adder", lambda *_: (0, 0, MODEL))
    monkeypatch.setattr(handle, "StudioServer", Served)


class Served:
    """A server that reads its models, and serves nobody."""

    address = once = "http://127.0.0.1/"

    def __init__(self, given, **options):
        for ref in given:
            resolve.load(ref)

    def run(self):
        pass

    stop = close = run


def result(name: str, given: dict[str, object]) -> str:
    """yes, a result; -, refused in one line. Anything else is raised, and fails the test."""
    usual = {**GOOD, **OF.get(name, {})}
    needed = {n for n, p in parameters(name).items() if p.default is p.empty}
    needed |= OF.get(name, {}).keys()
    try:
        result = doors()[name](**{n: usual[n] for n in needed if n in usual} | given)
        list(result) if name == "train" else None
        return "yes"
    except GlassformerError as e:
        assert str(e) and ("\n" not in str(e) or isinstance(e, ErrorList)), str(e)
        return "-"


def test_the_table_has_a_row_for_every_name():
    assert set(ROWS) == set(doors()) and TABLE.split()[:6] == [*GIVEN]


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.some(2)
def test_first_arguments(name, six):
    first = next(iter(parameters(name)))
    assert result(name, {}) == "yes", "the other arguments are in order"
    for column, output in zip(GIVEN, ROWS[name], strict=True):
        names = {result(name, {first: given}) for given in six[column]}
        assert names in ({output}, {output, "-"}), (name, column)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.some(3)
def test_all_other_arguments(name, six):
    """Every kind of value in every argument gives a result or a one-line error."""
    refused = 0
    for other in [*parameters(name)][1:]:
        for given in (x for column in six.values() for x in column):
            refused += result(name, {other: given}) == "-"
    assert refused or len(parameters(name)) == 1, "tried nothing"

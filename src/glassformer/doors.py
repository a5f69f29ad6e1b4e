"""The front door: what is called how at the top of the package, and which room it comes from.

This is the one list. `glassformer.NAME` imports this file when it is first asked for something, and
a type checker reads it as it stands. What is `opened` takes what people type: see face.py.
"""

from . import checkpoint, counting, decoding, face, refs, registry, runs, tap
from .bridges import export as _export
from .errors import GlassformerError as GlassformerError
from .face import fit as fit
from .face import opened as _opened
from .face import train as train
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
from .proof import prove as _prove
from .tasks import Task as Task
from .training import Recipe as Recipe
from .training import Training as Training
from .verification import Verdict as Verdict
from .verification import check as _check
from .verification import verify as _verify
from .vocabulary import Vocabulary as Vocabulary

load, load_task = _opened(refs.load), _opened(refs.load_task)
run, decode, forward = _opened(runs.run), _opened(decoding.decode), _opened(face.forward)
record, on, hook_names = _opened(tap.record), _opened(tap.on), _opened(tap.hook_names)
count, verify, prove = _opened(counting.count), _opened(_verify, _check), _opened(_prove)
explain, inspect, compare = _opened(_explain), _opened(_inspect), _opened(_compare)
ablate, patch, interchange = _opened(_ablate), _opened(_patch), _opened(_interchange)
attribute = _opened(_attribute)
save, export, report = _opened(checkpoint.save), _opened(_export), _opened(face.report)
program, task = _opened(registry.program), _opened(registry.task)
blueprint = _opened(registry.blueprint)
list, compile, view = _opened(face.list_), _opened(face.compile_), _opened(_view)

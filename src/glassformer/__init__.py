"""Glassformer: transformers you can see through.

    >>> import glassformer as gf
    >>> model = gf.load("addition:digits=3")
    >>> gf.run(model, "123+456").output
    '0579'
"""

from .checkpoint import save as save
from .count import count as count
from .decode import decode as decode
from .errors import GlassformerError as GlassformerError
from .lens import explain as explain
from .model import Config as Config
from .model import Labels as Labels
from .model import Model as Model
from .model import forward as forward
from .refs import load as load
from .refs import load_task as load_task
from .runs import run as run
from .tap import hook_names as hook_names
from .tap import on as on
from .tap import record as record
from .verify import verify as verify
from .vocabulary import Vocabulary as Vocabulary

__version__ = "0.1.0"

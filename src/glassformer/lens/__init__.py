"""Looking inside a model. Each view is a module; `inspect` has them all at once."""

from .explain import Explanation as Explanation
from .explain import explain as explain

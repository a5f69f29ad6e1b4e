"""Looking inside a model: what it computes and why. Each view is a module; `inspect` has them
all at once.
"""

from .explain import Explanation as Explanation
from .explain import explain as explain

"""Looking inside a model: what it computes and why."""

from .explain import Explanation as Explanation
from .explain import explain as explain

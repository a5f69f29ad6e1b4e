"""Interpretability: one module for each view of a model; `inspect` computes all of them."""

from .explain import Explanation as Explanation
from .explain import explain as explain

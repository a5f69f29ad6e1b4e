"""The sequence language: a few lines say what comes next, and are compiled into a transformer that
is proved to do it.
"""

from .interpret import emitted, run, trace
from .source import read
from .values import Program

__all__ = ["Program", "emitted", "read", "run", "trace"]

"""The sequence language: a few lines say what comes next, and are compiled into a transformer that
is proved to do it.
"""

from .compiler import Compiled, compile, recheck
from .interpret import emitted, run, trace
from .source import read
from .values import Program

__all__ = ["Compiled", "Program", "compile", "emitted", "read", "recheck", "run", "trace"]

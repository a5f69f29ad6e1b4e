"""What can be named (programs, tasks, blueprints, bridges), with options from signatures, and where
it is found.

A decorator registers a builder. Its typed parameters are the options, its docstring's first
paragraph the help:

    @program("min", float32=True)
    def minimum(vocab: Annotated[int, Between(2, 1_000_000)] = 10) -> Model:
        '''The smallest number read so far.'''
"""

from .decorators import blueprint as blueprint
from .decorators import bridge as bridge
from .decorators import check_name as check_name
from .decorators import is_name as is_name
from .decorators import program as program
from .decorators import task as task
from .discovery import ROOMS as ROOMS
from .discovery import announced as announced
from .discovery import build as build
from .discovery import built_in as built_in
from .discovery import entries as entries
from .discovery import find as find
from .discovery import is_known as is_known
from .discovery import take_in as take_in
from .entry import FILES as FILES
from .entry import REGISTRY as REGISTRY
from .entry import SOURCES as SOURCES
from .entry import Entry as Entry
from .entry import full_name as full_name
from .entry import source_of as source_of
from .options import Between as Between
from .options import Option as Option
from .ref_syntax import FILE as FILE
from .ref_syntax import NAMELESS as NAMELESS
from .ref_syntax import head as head
from .ref_syntax import split as split
from .ref_syntax import written as written

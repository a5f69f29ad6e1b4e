"""Registry of programs, tasks, parametrizations and bridges, with options from signatures.

A decorator registers a builder. The builder's typed parameters become the options, and the first
paragraph of its docstring becomes the help text:

    @program("min", float32=True)
    def minimum(vocab: Annotated[int, Between(2, 1_000_000)] = 10) -> Model:
        '''The smallest number read so far.'''
"""

from .decorators import bridge as bridge
from .decorators import check_entry_name as check_entry_name
from .decorators import is_entry_name as is_entry_name
from .decorators import parametrization as parametrization
from .decorators import program as program
from .decorators import task as task
from .discovery import PACKAGES_BY_KIND as PACKAGES_BY_KIND
from .discovery import build as build
from .discovery import built_in_names as built_in_names
from .discovery import entries as entries
from .discovery import entry_points_of as entry_points_of
from .discovery import find as find
from .discovery import is_registered as is_registered
from .discovery import load_entry_point as load_entry_point
from .entry import FILE_DIGESTS as FILE_DIGESTS
from .entry import MODULE_FILES as MODULE_FILES
from .entry import REGISTRY as REGISTRY
from .entry import Entry as Entry
from .entry import file_digest as file_digest
from .entry import qualified_name as qualified_name
from .options import Between as Between
from .options import Option as Option
from .ref_syntax import FILE_REF as FILE_REF
from .ref_syntax import FILE_WITHOUT_NAME as FILE_WITHOUT_NAME
from .ref_syntax import LIBRARY_PREFIX as LIBRARY_PREFIX
from .ref_syntax import SOURCE_SUFFIX as SOURCE_SUFFIX
from .ref_syntax import format_ref as format_ref
from .ref_syntax import is_source_name as is_source_name
from .ref_syntax import is_source_ref as is_source_ref
from .ref_syntax import ref_head as ref_head
from .ref_syntax import split_ref as split_ref

"""Syntax of refs: NAME:option=value,option=value, or FILE.py:NAME with optional options.

A name that starts with lang/ or ends in .glass is a source, which the compiler translates.
"""

import re
from collections.abc import Mapping
from typing import Any

from ..utils.errors import GlassformerError
from ..utils.limits import MAX_REF_CHARACTERS

# Matches FILE.py:NAME; user_modules.py executes the file.
FILE_REF = re.compile(r"(?P<file>.+?\.py):(?P<name>\w+)(?=:|$)")
FILE_WITHOUT_NAME = re.compile(r"(?P<file>[^:=]+\.py)(?::[^:=]*)?$")  # or an invalid name
LIBRARY_PREFIX, SOURCE_SUFFIX = "lang/", ".glass"


def ref_head(ref: str) -> str:
    """Return a ref without its options, as in addition or mine.py:Vote."""
    match = FILE_REF.match(ref)
    return match[0] if match else ref.partition(":")[0]


def is_source_name(name: str) -> bool:
    """Return whether a name without options is that of a source."""
    return name.startswith(LIBRARY_PREFIX) or name.endswith(SOURCE_SUFFIX)


def is_source_ref(ref: str) -> bool:
    """Return whether a ref names a source."""
    return "\n" not in ref and is_source_name(ref.partition(":")[0])


def split_ref(ref: str, option_names: Any = None) -> tuple[str, dict[str, str]]:
    """Split a ref into its name and the option values as strings.

    >>> split_ref('hello-world:message="Hello, World!",variant=book')
    ('hello-world', {'message': 'Hello, World!', 'variant': 'book'})

    A comma belongs to the value unless an option name follows, since shells remove quotes.
    """
    if len(ref) > 4 * MAX_REF_CHARACTERS:
        expected = f"expected at most {4 * MAX_REF_CHARACTERS:,} characters"
        raise GlassformerError(f"{ref[:60]}… — {expected}, got {len(ref):,}")
    name = ref_head(ref)
    rest = ref[len(name) + 1 :]
    options, at = dict[str, str](), 0
    while at < len(rest):
        option = re.compile(r"([A-Za-z_]\w*)=").match(rest, at)
        if not option:
            before = name + ":" + rest[:at]
            expected = f"expected option=value after {before!r}"
            raise GlassformerError(f"{ref} — {expected}, got {rest[at:]!r}")
        key, at = option.group(1), option.end()
        quoted = re.compile(r'"((?:[^"\\]|\\.)*)"(?=,|$)').match(rest, at)
        if quoted:
            value, at = re.sub(r"\\(.)", r"\1", quoted.group(1)), quoted.end()
        else:
            commas = re.compile(r",(?=([A-Za-z_]\w*)=)").finditer(rest, at)
            ends = (c.start() for c in commas if option_names is None or c.group(1) in option_names)
            end = next(ends, len(rest))
            value, at = rest[at:end], end
        if key in options:
            raise GlassformerError(f"{ref} — option {key} occurs twice")
        options[key] = value
        at += 1  # the comma
    return name, options


def format_ref(name: str, values: Mapping[str, Any]) -> str:
    """Return the ref with a name and option values; the inverse of `split_ref`."""
    parts = [f"{n}={_quote_value(v)}" for n, v in values.items()]
    return ":".join([name, ",".join(parts)] if parts else [name])


def _quote_value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not re.search(r'[,:="\s\\]', text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

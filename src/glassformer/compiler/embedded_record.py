"""Schema of a compiled model's provenance entry: its source and declaration."""

from typing import Annotated, Any

from msgspec import Meta

from ..utils.typed_json import Finite, JsonObject, Name, check_small

Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Code = Annotated[
    list[Annotated[list[Finite], Meta(max_length=10_000)]], Meta(max_length=20_000)
]  # one row for each element of the domain
# tuples (value number, sublayer, start of the slot, code)
EmbeddedValues = list[tuple[int, Index, Index, Code]]


class EmbeddedSource(JsonObject):
    """Provenance entry with the source and declaration; see driver.load_declaration."""

    name: Name
    source: Annotated[str, Meta(max_length=100_000)]
    options: Annotated[dict[Name, Any], Meta(max_length=100)]
    # Converted to EmbeddedValues after the format is checked, because other formats may differ.
    values: Annotated[list[tuple[Any, Any, Any, Any]], Meta(max_length=10_000)]
    # tuples (number of the threshold count, start of its average slot, stop)
    room: Annotated[list[tuple[Index, Index, Index]], Meta(max_length=10_000)]
    format: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 0  # 0 marks entries without a format number

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            check_small(value, f"options.{name}", 1_000)

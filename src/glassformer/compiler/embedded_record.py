"""The entry of its provenance in which a compiled model carries its source and its declaration."""

from typing import Annotated, Any

from msgspec import Meta

from ..utils.typed_json import Finite, Name, Record, check_small

Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Code = Annotated[
    list[Annotated[list[Finite], Meta(max_length=10_000)]], Meta(max_length=20_000)
]  # a row for each member of a value
# the number of a value, its time, the start of its slot, its code
Values = list[tuple[int, Index, Index, Code]]


class Embedded(Record):
    """What the compiler stores. driver.declared reads it, and believes none of it."""

    name: Name
    source: Annotated[str, Meta(max_length=100_000)]
    options: Annotated[dict[Name, Any], Meta(max_length=100)]
    # Values: converted after the format is known, as another format may have others
    values: Annotated[list[tuple[Any, Any, Any, Any]], Meta(max_length=10_000)]
    # the number of a tally, the start and the stop of its room
    room: Annotated[list[tuple[Index, Index, Index]], Meta(max_length=10_000)]
    format: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 0  # 0: from before there were formats

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            check_small(value, f"options.{name}", 1_000)

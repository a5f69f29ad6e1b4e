"""What a compiled model carries, and how its text begins: all that who only asks needs to know."""

from ..utils import json_schema

KEY = "compiled"  # the entry of a model's provenance
BOS = "<bos>"  # the beginning of every text
# Of what a model carries: the next, whenever the compiler makes other values of a source, or others
# first. Values are told by their numbers.
FORMAT = 1
COMPILED = json_schema.record({
    "name": json_schema.text(1_000), "source": json_schema.text(100_000),
    "options": json_schema.mapping(json_schema.small(1_000), 100),
    "values": json_schema.listing(json_schema.listing(json_schema.anything, 4, 4), 10_000),
    "room": json_schema.listing(json_schema.listing(json_schema.whole(0, 2**31 - 1), 3, 3), 10_000),
}, {"format": json_schema.whole(1, 2**31 - 1)})  # fmt: skip

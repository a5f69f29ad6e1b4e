"""Constants of what a compiled model carries, for modules that every command imports."""

KEY = "compiled"  # the entry of a model's provenance, an embedded_record.Embedded
BOS = "<bos>"  # the beginning of every text
# Of what a model carries: the next, whenever the compiler makes other values of a source, or others
# first. Values are told by their numbers.
FORMAT = 1

"""Constants of the source embedded in a compiled model, for modules that every command imports."""

BOS = "<bos>"  # first token of every input sequence
# Format of the embedded declaration. Increase it when the compiler changes the values of a source
# or their order: values are identified by number.
DECLARATION_FORMAT = 1

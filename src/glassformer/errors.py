"""The one exception that bad input raises."""


class GlassformerError(Exception):
    """Something the caller gave is wrong: what was being done, what was expected, what was got."""

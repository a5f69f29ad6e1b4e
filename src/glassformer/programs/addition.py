"""The program addition: one name for the constructions of four files."""

from typing import Literal

from ..core.model import Model
from ..registry import program
from ..tasks.addition import Digits
from ..utils.errors import GlassformerError


@program("addition")
def addition(
    digits: Digits = 3, variant: Literal["compact", "book", "printed"] = "compact",
    order: Literal["most", "ones"] = "most", padding: Literal["zero", "none"] = "zero",
    dtype: Literal["float64", "float32"] = "float64",
) -> Model:  # fmt: skip
    """The sum of two numbers, digit by digit.

    `compact`: one attention layer of two heads, see addition_compact. 130 / 145 / 160 parameters,
    265 for 10 digits. `book`: the booklet's Figure 6.4, with rows of `+` and `=` that differ from
    the row of 0. 2,088 / 27,432 / 360,576 parameters for 1 / 2 / 3 digits. `printed`: the figure as
    printed, where they are equal. Its 0 ties with `+` and `=`, which `verify` counts as wrong.
    `order=ones`: the answer's ones first and <EOS> last, as the book's trained model
    has it. `padding=none`: operands and answer without leading zeros, the booklet's exercise 6.20.
    """
    formats = [f"order={order}"] * (order != "most") + [f"padding={padding}"] * (padding != "zero")
    if len(formats) > 1:
        raise GlassformerError("order=ones and padding=none do not go together; leave one out")
    if formats and variant != "compact":
        only = f"variant={variant} is the booklet's format only"
        raise GlassformerError(f"{only}; leave out {formats[0]}")
    if order == "ones":
        from .addition_ones import addition_ones_first

        return addition_ones_first(digits, dtype)
    if padding == "none":
        if dtype == "float32":
            raise GlassformerError("not right in float32: padding=none needs dtype=float64")
        from .addition_unpadded import unpadded_addition

        return unpadded_addition(digits)
    if variant == "compact":
        from .addition_compact import compact_addition

        return compact_addition(digits, dtype)
    if dtype == "float32" and digits > 2:
        way_out = f"variant={variant} is so up to 2 digits; use variant=compact"
        raise GlassformerError(f"not right in float32: {way_out}")
    from .addition_book import book_addition

    return book_addition(digits, variant == "printed").astype(dtype)

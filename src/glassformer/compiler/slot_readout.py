"""Decode every value of a compiled model from its slots, and compare with the interpreter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.model import PROVENANCE_KEY, Model
from ..utils.errors import GlassformerError
from .literals import format_element
from .task import embedded_entry


@dataclass(frozen=True)
class ValueReading:
    """The decoded and the interpreted element of one value at the last position."""

    name: str
    place: str  # component that writes the value: "embed", "attention 0", "mlp 0"
    holds: str  # element whose code is nearest to the slot
    means: str  # element that the interpreter computes
    off: float  # distance from the slot to the nearest code; 1 is halfway to the next code

    def __str__(self) -> str:
        check = "as the interpreter says" if self.holds == self.means else f"NOT {self.means}"
        return f"  {self.place:<12}  {self.name} = {self.holds}, {check}"


def text_start(model: Model, tokens: Any) -> int:
    """Return the index of the source's position 0: 1 after a compiled model's <bos>, else 0."""
    return int(PROVENANCE_KEY in model.provenance and len(tokens) > 0 and tokens[0] == 0)


def read_slots(model: Model, tokens: Any, stream: Callable[[int], Any]) -> list[ValueReading]:
    """Decode the slots at the last position into values, in the order they are computed.

    Args:
        model: The model. A model without an embedded source yields no readings.
        tokens: The input tokens [T]. Without <bos> at the start there are no readings.
        stream: Function that returns the stream [D] after the embedding (0), the heads (2l+1) or
            the neurons (2l+2) of layer l.

    Returns:
        One reading for each slot.

    Raises:
        GlassformerError: If the embedded declaration does not fit the model.
    """
    text = np.asarray(tokens)
    entry = embedded_entry(model)
    if entry is None or len(text) < 2 or text[0] != 0 or (text[1:] == 0).any():
        return []
    from .driver import load_declaration  # imported here since most models are not compiled
    from .interpreter import evaluate_value, trace

    program, declaration = load_declaration(entry)
    if len(text) - 1 > program.length or len(program.tokens) + 1 != model.config.d_vocab:
        return []
    source_tokens = text[None, 1:] - 1
    values = trace(declaration.program, source_tokens)
    readings = []
    for v, time in sorted(declaration.sublayers.items(), key=lambda item: item[1]):
        slot = declaration.slots[v]
        if slot.stop == slot.start or time > 2 * model.config.n_layers:
            continue
        if slot.stop > model.config.d_model:
            raise GlassformerError(f"{v.name} — its declared slot is outside the stream")
        i, off = _nearest(stream(time)[slot], declaration.codes[v])
        # A copy with its own slot is not a value of the program
        indices = values[v] if v in values else evaluate_value(v, source_tokens, values)
        holds, means = (format_element(v.domain[j]) for j in (i, int(indices[0, -1])))
        readings.append(ValueReading(v.name, _component_name(time), holds, means, off))
    return readings


def _nearest(x: Any, code: Any) -> tuple[int, float]:
    """Return the index of the nearest code, and its distance in half gaps to the next code."""
    distance = np.sqrt(((np.asarray(x, float) - code) ** 2).sum(1))
    i = int(distance.argmin())
    others = np.sqrt(((code - code[i]) ** 2).sum(1))
    return i, float(2 * distance[i] / np.delete(others, i).min(initial=np.inf))


def _component_name(time: int) -> str:
    return "embed" if time == 0 else f"{'mlp' if time % 2 == 0 else 'attention'} {(time - 1) // 2}"

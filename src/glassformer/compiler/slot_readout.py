"""What a compiled model holds, value by value, beside what the interpreter says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.model import Model
from ..utils.errors import GlassformerError
from .driver import PROVENANCE_KEY, load_declaration
from .interpreter import evaluate_value, trace
from .literals import format_element
from .task import embedded_entry


@dataclass(frozen=True)
class ValueReading:
    """One value at one position."""

    name: str
    place: str  # the part after which it is there: "embed", "attention 0", "mlp 0"
    holds: str  # by the code that is nearest to what its slot holds
    means: str  # the interpreter's
    off: float  # by how much the slot differs from that code, of the distance to the next code

    def __str__(self) -> str:
        same = "as the interpreter says" if self.holds == self.means else f"NOT {self.means}"
        return f"  {self.place:<12}  {self.name} = {self.holds}, {same}"


def text_start(model: Model, tokens: Any) -> int:
    """Where the text begins that a source counts from 0: of a compiled model after <bos>."""
    return int(PROVENANCE_KEY in model.provenance and len(tokens) > 0 and tokens[0] == 0)


def read_slots(model: Model, tokens: Any, stream: Callable[[int], Any]) -> list[ValueReading]:
    """Every value that has a slot, at the last of `tokens` [T], in the order in which they come.

    `stream(t)`: the stream there, [D], after the embedding (0), the heads (2l+1) or the neurons
    (2l+2) of layer l. Nothing is found of a model that was not compiled, or of a text that does not
    begin with <bos>.
    """
    text = np.asarray(tokens)
    entry = embedded_entry(model)
    if entry is None or len(text) < 2 or text[0] != 0 or (text[1:] == 0).any():
        return []
    program, said = load_declaration(entry)
    if len(text) - 1 > program.length or len(program.tokens) + 1 != model.config.d_vocab:
        return []
    meant = trace(said.program, text[None, 1:] - 1)
    out = []
    for v in sorted(said.slots, key=lambda v: said.sublayers[v]):
        slot, time = said.slots[v], said.sublayers[v]
        if slot.stop == slot.start or time > 2 * model.config.n_layers:
            continue
        if slot.stop > model.config.d_model:
            raise GlassformerError(f"{v.name} — is declared to stand beyond the stream")
        i, off = _nearest(stream(time)[slot], said.codes[v])
        # A copy of a value that has a slot of its own is no value of the program.
        known = meant[v] if v in meant else evaluate_value(v, text[None, 1:] - 1, meant)
        means = v.domain[int(known[0, -1])]
        out.append(
            ValueReading(
                v.name,
                _component_name(time),
                format_element(v.domain[i]),
                format_element(means),
                off,
            )
        )
    return out


def _nearest(x: Any, code: Any) -> tuple[int, float]:
    """The member whose code is nearest, and how far off it is: 1 is halfway to the next."""
    far = np.sqrt(((np.asarray(x, float) - code) ** 2).sum(1))
    i = int(far.argmin())
    others = np.sqrt(((code - code[i]) ** 2).sum(1))
    return i, float(2 * far[i] / np.delete(others, i).min(initial=np.inf))


def _component_name(time: int) -> str:
    return "embed" if time == 0 else f"{'mlp' if time % 2 == 0 else 'attention'} {(time - 1) // 2}"

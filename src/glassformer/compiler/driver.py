"""From a source to a proved model: the passes in their order, and what came of them."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.model import Model
from ..utils.errors import GlassformerError, short_repr
from ..utils.limits import check_int_range
from ..utils.results import Displayable
from ..utils.typed_json import convert
from .certify import Certificate, Declaration, certify, check_equivalent
from .embedded_record import EmbeddedSource, EmbeddedValues
from .embedded_source import DECLARATION_FORMAT
from .embedded_source import PROVENANCE_KEY as PROVENANCE_KEY
from .frontend.parser import read
from .ir import Program, ThresholdCount, Value, make_names_unique
from .passes.allocate import ValueCopies
from .passes.calibrate import calibrate
from .passes.simplify import Replacements, simplify
from .passes.tabulate import tabulate
from .task import embedded_entry

DTYPES = ("float64", "float32")
TARGETS = ("", "gpt2")


@dataclass(frozen=True)
class Compiled(Displayable):
    """A program, the model that does what it says, and why that is certain."""

    program: Program
    model: Model
    certificate: Certificate

    @property
    def shape(self) -> str:
        """How large the model is, in words."""
        c, size = self.model.config, sum(w.size for w in self.model.weights.values())
        many = ((c.n_layers, "layer", ""), (c.n_heads, "head", f" of {c.d_head}"))
        parts = [f"{n} {word}{'s' * (n != 1)}{more}" for n, word, more in many]
        neurons = f"{c.d_mlp:,} neuron{'s' * (c.d_mlp != 1)}"
        return ", ".join([*parts, f"width {c.d_model}", neurons, f"{size:,} parameters"])

    def __str__(self) -> str:
        found = self.certificate
        return (
            f"{self.program.name}: {self.shape}; proved in {found.dtype} for every text of up to "
            f"{self.program.length} tokens, {found.cases:,} cases; the right token leads by "
            f"{found.margin:.3g}; tightest at {found.tightest}"
        )


def compile(
    source: str, name: str = "source", *, options: Mapping[str, Any] | None = None,
    dtype: str = "float64", target: str = "", ref: str = "",
) -> Compiled:  # fmt: skip
    """The model of a source, proved in the float type it is in.

    `target`: "gpt2" for a model whose heads together are as wide as its stream.
    """
    for what, given, allowed in (("dtype", dtype, DTYPES), ("target", target, TARGETS)):
        if given not in allowed:
            names = ", ".join(repr(x) for x in allowed)
            raise GlassformerError(f"{what} must be one of {names}, got {short_repr(given)}")
    program = read(source, name, options)
    simple, became = simplified_program(program)
    check_equivalent(program, simple, became)
    model, certificate, made = calibrate(simple, dtype, target)
    told = {
        "format": DECLARATION_FORMAT,
        "name": name,
        "source": source,
        "options": dict(options or {}),
    }
    told |= declaration_to_json(simple, made.declaration, made.copies)
    provenance = {"maker": "compiler", "ref": ref or name, PROVENANCE_KEY: told}
    return Compiled(program, replace(model, provenance=provenance, task=ref or name), certificate)


def simplified_program(program: Program) -> tuple[Program, Replacements]:
    """What is compiled for a program, and which of its values stands for which."""
    made, became = simplify(program)
    made, later = tabulate(made)
    return made, {v: later.get(w, w) for v, w in became.items()}


def declaration_to_json(program: Program, said: Declaration, twins: ValueCopies) -> dict[str, Any]:
    """A declaration as JSON; values are told by their number in the program, i, and copies of them
    by -1 - i.
    """
    number = {v: i for i, v in enumerate(program.values)}
    number |= {twin: -1 - number[v] for (_, v), twin in twins.items()}
    values = [
        [number[v], said.sublayers[v], s.start, np.asarray(said.codes[v]).tolist()]
        for v, s in said.slots.items()
    ]
    return {
        "values": values,
        "room": [[number[v], s.start, s.stop] for v, s in said.average_slots.items()],
    }


def load_declaration(told: Mapping[str, Any]) -> tuple[Program, Declaration]:
    """The program and the declaration that a compiled model carries. Neither is believed."""
    entry = convert(told, EmbeddedSource, PROVENANCE_KEY)
    if entry.format != DECLARATION_FORMAT:
        raise GlassformerError(
            f"{entry.name} — carries a declaration of format {entry.format}, and this version "
            f"reads {DECLARATION_FORMAT}; compile its source again"
        )
    program = read(entry.source, entry.name, entry.options)
    simple, became = simplified_program(program)
    values = simple.values
    codes, times, slots = {}, {}, {}
    room: dict[ThresholdCount, slice] = {}
    for i, time, start, code in convert(entry.values, EmbeddedValues, f"{PROVENANCE_KEY}.values"):
        v = _value_by_number(values, i)
        widths = {len(row) for row in code}
        if len(code) != len(v) or len(widths) != 1:
            raise GlassformerError(
                f"{v.name} — its code must have a row for each of {len(v)} values"
            )
        codes[v], times[v] = np.array(code, float).reshape(len(v), widths.pop()), time
        slots[v] = slice(start, start + codes[v].shape[1])
    make_names_unique([*values, *(v for v in slots if v not in values)])
    for i, start, stop in entry.room:
        v = _value_by_number(values, i)
        if not isinstance(v, ThresholdCount):
            raise GlassformerError(f"{v.name} — has room declared, and is no tally")
        room[v] = slice(start, stop)
    return program, Declaration(simple, became, codes, times, slots, room)


def _value_by_number(values: list[Value], i: int) -> Value:
    check_int_range(f"{PROVENANCE_KEY}.values", i, -len(values), len(values) - 1)
    return values[i] if i >= 0 else copy(values[-1 - i])


def recheck(model: Model, progress: Callable[[int, int], object] | None = None) -> Compiled:
    """The certificate of a model that carries its source, found anew: the source is read, and the
    weights are checked against what it means. The declaration that comes with it is not believed.
    `watch` is told how far it is: values that are known to hold, of all.
    """
    entry = embedded_entry(model)
    if entry is None:
        raise GlassformerError(f"{model.name} — was not compiled: it carries no program")
    program, said = load_declaration(entry)
    return Compiled(program, model, certify(model, program, said, progress))

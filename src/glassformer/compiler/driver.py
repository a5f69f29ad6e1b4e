"""The compiler's passes in order: from a source to a model with a certificate."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.model import PROVENANCE_KEY, Model
from ..utils.errors import DAMAGED_FILE, GlassformerError, short_repr
from ..utils.limits import check_int_range
from ..utils.progress import ProgressCallback
from ..utils.results import Displayable
from ..utils.typed_json import convert
from .certify import Certificate, Declaration, certify, check_equivalent
from .embedded_record import EmbeddedSource, EmbeddedValues
from .embedded_source import DECLARATION_FORMAT
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
    """A program, its model, and the certificate that both agree on every input sequence."""

    program: Program
    model: Model
    certificate: Certificate

    @property
    def shape(self) -> str:
        """The size of the model as a string: layers, heads, width, neurons and parameters."""
        c, parameters = self.model.config, sum(w.size for w in self.model.weights.values())
        counts = [(c.n_layers, "layer", ""), (c.n_heads, "head", f" of {c.d_head}")]
        parts = [f"{n} {noun}{'s' * (n != 1)}{suffix}" for n, noun, suffix in counts]
        neurons = f"{c.d_mlp:,} neuron{'s' * (c.d_mlp != 1)}"
        return ", ".join([*parts, f"width {c.d_model}", neurons, f"{parameters:,} parameters"])

    def __str__(self) -> str:
        certificate = self.certificate
        return (
            f"{self.program.name}: {self.shape}; proved in {certificate.dtype} for every text of "
            f"up to {self.program.length} tokens, {certificate.cases:,} cases; the right token "
            f"leads by {certificate.margin:.3g}; tightest at {certificate.tightest}"
        )


def compile(
    source: str,
    name: str = "source",
    *,
    options: Mapping[str, Any] | None = None,
    dtype: str = "float64",
    target: str = "",
    ref: str = "",
) -> Compiled:
    """Compile a source to a model and prove that they agree.

    Args:
        source: Text of the source.
        name: Name of the source in error messages, before line and column.
        options: Values of the source's options.
        dtype: Float type of the weights and of the proof: float64 or float32.
        target: "gpt2" makes n_heads · d_head equal to the width of the stream, as GPT-2 requires.
        ref: Ref that the model records. Defaults to `name`.

    Returns:
        The program, the model and its certificate.

    Raises:
        GlassformerError: For an invalid argument, an invalid source (`bad_source`), or a program
            that needs too large a model.
        Unproved: If the proof fails.
    """
    for argument, value, choices in (("dtype", dtype, DTYPES), ("target", target, TARGETS)):
        if value not in choices:
            expected = ", ".join(map(repr, choices))
            raise GlassformerError(
                f"{argument} — expected one of {expected}, got {short_repr(value)}"
            )
    program = read(source, name, options)
    simple, became = simplified_program(program)
    check_equivalent(program, simple, became)
    model, certificate, plan = calibrate(simple, dtype, target)
    entry = {"format": DECLARATION_FORMAT, "name": name, "source": source}
    entry |= {"options": dict(options or {})}
    entry |= declaration_to_json(simple, plan.declaration, plan.copies)
    provenance = {"maker": "compiler", "ref": ref or name, PROVENANCE_KEY: entry}
    return Compiled(program, replace(model, provenance=provenance, task=ref or name), certificate)


def simplified_program(program: Program) -> tuple[Program, Replacements]:
    """Return the simplified program to compile, and the replacement of each original value."""
    simple, became = simplify(program)
    tabulated, later = tabulate(simple)
    return tabulated, {v: later.get(w, w) for v, w in became.items()}


def declaration_to_json(
    program: Program, declaration: Declaration, copies: ValueCopies
) -> dict[str, Any]:
    """Encode a declaration as JSON. Value i of the program has number i; its copy has -1 - i."""
    number = {v: i for i, v in enumerate(program.values)}
    number |= {copied: -1 - number[v] for (_, v), copied in copies.items()}
    values = [
        [number[v], declaration.sublayers[v], s.start, np.asarray(declaration.codes[v]).tolist()]
        for v, s in declaration.slots.items()
    ]
    average_slots = [[number[v], s.start, s.stop] for v, s in declaration.average_slots.items()]
    return {"values": values, "room": average_slots}


def load_declaration(entry: Mapping[str, Any]) -> tuple[Program, Declaration]:
    """Read the program and the declaration of a compiled model. Neither is trusted.

    Raises:
        GlassformerError: the entry is malformed, or does not fit the program.
    """
    record = convert(entry, EmbeddedSource, PROVENANCE_KEY)
    if record.format != DECLARATION_FORMAT:
        raise GlassformerError(
            f"{record.name} — expected a declaration of format {DECLARATION_FORMAT}, got "
            f"{record.format}. Compile its source again",
            code=DAMAGED_FILE,
        )
    program = read(record.source, record.name, record.options)
    simple, became = simplified_program(program)
    values = simple.values
    codes, times, slots = {}, {}, {}
    average_slots: dict[ThresholdCount, slice] = {}
    for i, time, start, code in convert(record.values, EmbeddedValues, f"{PROVENANCE_KEY}.values"):
        v = _value_by_number(values, i)
        widths = {len(row) for row in code}
        if len(code) != len(v) or len(widths) != 1:
            raise GlassformerError(f"{v.name} — expected a code of {len(v)} equally long rows")
        codes[v], times[v] = np.array(code, float).reshape(len(v), widths.pop()), time
        slots[v] = slice(start, start + codes[v].shape[1])
    make_names_unique([*values, *(v for v in slots if v not in values)])
    for i, start, stop in record.room:
        v = _value_by_number(values, i)
        if not isinstance(v, ThresholdCount):
            raise GlassformerError(f"{v.name} — expected a threshold count for an average slot")
        average_slots[v] = slice(start, stop)
    return program, Declaration(simple, became, codes, times, slots, average_slots)


def _value_by_number(values: list[Value], i: int) -> Value:
    check_int_range(f"{PROVENANCE_KEY}.values", i, -len(values), len(values) - 1)
    return values[i] if i >= 0 else copy(values[-1 - i])


def recheck(model: Model, progress: ProgressCallback | None = None) -> Compiled:
    """Prove again that a compiled model agrees with its embedded source.

    The source is read and the weights are checked; the embedded declaration is not trusted.

    Args:
        model: A model with an embedded source.
        progress: Callback that receives the number of proved values and their total.

    Returns:
        The program, the model and a new certificate.

    Raises:
        GlassformerError: If the model has no embedded source.
        Unproved: If the proof fails.
    """
    entry = embedded_entry(model)
    if entry is None:
        raise GlassformerError(f"{model.name} — expected a compiled model, got one without source")
    program, declaration = load_declaration(entry)
    return Compiled(program, model, certify(model, program, declaration, progress))

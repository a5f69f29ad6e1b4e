"""Export to AdderBoard: a Python file with build_model() and add() that needs only torch.

The contest counts the module's parameters. A model with a parametrization keeps theta and
the formula, so a file of adder-least has three parameters (this count ignores the formula); other
models keep their arrays. The written file is loaded as the contest loads it, in a separate process,
and its answers are compared with the model's.
"""

import ast
import json
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ..core.checkpoint import check_theta, digest
from ..core.model import Model
from ..core.param_count import count
from ..interop.common import check_finite, run_python_file, torch_logits, write_python
from ..interop.inline import formula_source
from ..interop.parity import matching_task
from ..interop.torch_source import join_lines, network_definitions, torch_imports, weights_source
from ..parametrizations import build_parametrization
from ..registry import bridge, find, ref_head
from ..tasks.base import Task
from ..tasks.token_layout import TOKEN, TokenLayout
from ..utils.errors import GlassformerError
from ..utils.sandbox.runner import Limits
from .protocol import (
    COUNT_MEANINGS,
    EDGE_CASES,
    adder_answers,
    check_adder,
    counts_by_rule,
    describe_counts,
    random_pairs,
)
from .trust import sandbox_lines

MAX_NUMBERS = 100_000  # numbers per file
CHECKED_PAIRS = 200  # number of checked pairs, besides the edge cases
ADDER_SOURCE = '''\
class Adder(nn.Module):
    """The transformer whose arrays are made from theta. Only theta is parameters."""

    def __init__(self):
        super().__init__()
        tensors = {n: torch.tensor(numbers, dtype=DTYPE).reshape(SHAPES[n]) for n, numbers in THETA.items()}
        self.theta = nn.ParameterList(tensors.values())
        self.formula = FORMULA
        with torch.device("meta"):  # shapes only; in a list, so that it adds no parameters
            self.net = [Transformer()]
        self.shapes = {n: tuple(p.shape) for n, p in self.net[0].named_parameters()}

    def forward(self, tokens):  # [B,T]
        weights = self.formula.expand(dict(zip(THETA, self.theta)), self.shapes)
        return torch.func.functional_call(self.net[0], weights, (tokens,), strict=True)'''  # noqa: E501
LOAD_SOURCE = """\
    model = Transformer()
    shapes = {n: p.shape for n, p in model.named_parameters()}
    arrays = {n: torch.tensor(NUMBERS[n], dtype=DTYPE).reshape(s) for n, s in shapes.items()}
    model.load_state_dict(arrays)"""
GENERATE_SOURCE = '''\
@torch.no_grad()
def generate(model, tokens):
    """The tokens that the model adds, each with the largest logit."""
    output = []
    for _ in range(STEPS):
        logits = model(torch.tensor([(tokens + output)[-BLOCK:]]))[0, -1]
        output.append(int(logits.argmax()))
        if output[-1] == STOP:
            break
    return output'''


@bridge("adderboard")
class Adderboard:
    extra, needs, float32 = "torch", ("torch",), False
    files: frozenset[str] = frozenset()

    def check(self, model: Model) -> None:
        check_adder(model, _adder_task(model))
        model = without_base(model)
        arrays = model.theta or model.weights
        check_finite("adderboard", arrays)
        if (size := sum(w.size for w in arrays.values())) > MAX_NUMBERS:
            limit = f"expected at most {MAX_NUMBERS:,} numbers, got {size:,}"
            raise GlassformerError(
                f"export to adderboard — {limit}; export to torch instead", code="unsupported"
            )

    def write(self, model: Model, path: Path) -> list[str]:
        task = _adder_task(model)
        layout, counted_model = check_adder(model, task), without_base(model)
        write_python(path, submission_source(counted_model, task, layout))
        sums = [*EDGE_CASES, *random_pairs(CHECKED_PAIRS)]
        ours = adder_answers(model, task, layout, sums)
        code = path.read_bytes()
        lines = sandbox_lines(path, code, sums, Limits(), sandbox=False)  # the code is our own
        theirs = [line.get("got") for line in lines if line["event"] == "answer"]
        for (a, b), x, y in zip(sums, ours, theirs, strict=True):
            # -1 means that the output is not a number
            if x != y and (isinstance(x, int) or y != -1):
                raise GlassformerError(
                    f"export to adderboard — expected {a}+{b} = {x} from the file, as from the "
                    f"model, got {y}"
                )
        right = sum(x == a + b for (a, b), x in zip(sums, ours, strict=True))
        tried = f"{len(EDGE_CASES)} edge cases and {CHECKED_PAIRS} pairs"
        same = f"all answers to {tried} equal the model's, {right} are right"
        notes = [f"loaded as the contest does, one sum at a time: {same}"]
        counts = describe_counts(counts_by_rule(count(counted_model)))
        notes += [f"{rule} {figure}: {meaning}" for rule, figure, meaning in counts]
        if counted_model.parametrization != model.parametrization:
            reason = "its base consists of numbers too: all weights are parameters in the file"
            notes.append(f"{model.parametrization} — {reason}")
        return notes

    def logits(self, path: Path, tokens: Any) -> Any:
        return torch_logits(run_python_file(path)["build_model"]()[0], tokens)


def without_base(model: Model) -> Model:
    """Return the model without a parametrization on top of other weights, as it is counted."""
    if model.parametrization and build_parametrization(model.parametrization).base is not None:
        return replace(model, parametrization="", theta={})
    return model


def submission_source(model: Model, task: Task, layout: TokenLayout) -> str:
    """Return the source code of a submission file."""
    check_theta("model", model)
    imports, parts, expression = set[str](), list[str](), ""
    if model.parametrization:
        imports, parts, expression = formula_source(model.parametrization)
        numbers = _theta_source(model, expression)
    else:
        numbers = weights_source(model.weights)
    net = network_definitions(model)
    _check_names(net, parts)
    imports = imports | ({"import math"} if "math." in "".join(net) else set())
    top, bottom = _header_source(model, imports, "\n".join(net)), _add_source(task, layout, model)
    return "\n\n\n".join([top, *net, *parts, numbers, _build_source(model), bottom]) + "\n"


# ── parts of the file ──────────────────────────────────────────────────────────────────────────
def _header_source(model: Model, imports: set[str], net: str) -> str:
    counts = describe_counts(counts_by_rule(count(model)))
    rule_width, width = max(map(len, COUNT_MEANINGS)), max(len(figure) for _, figure, _ in counts)
    plain = sorted(i for i in imports if "numpy" not in i)
    return join_lines(
        '"""A transformer that adds two numbers of ten digits, as a submission to AdderBoard.',
        "",
        f"    {model.config}",
        "",
        f"Written by glassformer from {_printable(model.name)}; SHA-256 of the model:",
        f"{digest(model)}",
        "",
        "Parameter counts by rule:",
        "",
        *(
            f"    {rule:<{rule_width}}  {figure:>{width}}  {means}"
            for rule, figure, means in counts
        ),
        "",
        "B batch, T positions, S keys, D width of the stream, H heads, K head size, F neurons.",
        '"""',
        "",
        *([*plain, ""] if plain else []),
        *sorted(i for i in imports if "numpy" in i),
        *torch_imports(net),
        "",
        f"DTYPE = torch.{model.dtype}",
        f"BLOCK = {model.config.n_ctx}  # context length",
    )


def _theta_source(model: Model, expression: str) -> str:
    weight_shapes = {name: tuple(w.shape) for name, w in model.weights.items()}
    order = build_parametrization(model.parametrization).theta_shapes(weight_shapes)
    rows = ["THETA = {  # all parameters"]
    for name in order:
        array = model.theta[name]
        if array.ndim < 2:
            rows.append(f"    {_quote(name)}: {array.tolist()!r},")
        else:
            values = array.reshape(-1, array.shape[-1]).tolist()
            rows += [f"    {_quote(name)}: [", *(f"        {row!r}," for row in values), "    ],"]
    shapes = {name: tuple(model.theta[name].shape) for name in order}
    return join_lines(
        *rows, "}", f"SHAPES = {shapes!r}", "\n", ADDER_SOURCE.replace("FORMULA", expression)
    )


def _build_source(model: Model) -> str:
    return join_lines(
        "def build_model():",
        "    model = Adder()" if model.parametrization else LOAD_SOURCE,
        "    metadata = {",
        f'        "name": {_quote(model.name)},',
        '        "author": "glassformer",  # and you',
        '        "params": sum(p.numel() for p in model.parameters()),',
        f'        "architecture": {_quote(model.config)},',
        '        "tricks": [',
        *(f"            {_quote(trick)}," for trick in size_tricks(model)),
        "        ],",
        "    }",
        "    return model.eval(), metadata",
    )


def _add_source(task: Task, layout: TokenLayout, model: Model) -> str:
    digits = f"{{x:0{layout.digits('a')}}}" if layout.padded else "{x}"
    question = layout.spots[: layout.first]
    marks = sorted({token for name, token in question if name == TOKEN and token > 9})
    note = "  # " + ", ".join(f"{m}: {model.vocabulary[m]}" for m in marks) if marks else ""
    number = "output[::-1]" if layout.spots[layout.first] == ("s", 0) else "output"
    return join_lines(
        f"STEPS, STOP = {task.steps(())}, {task.stop}  # tokens of an answer, and its last token",
        "\n",
        GENERATE_SOURCE,
        "\n",
        "def digits(x):",
        '    """The ones first."""',
        f'    return [int(d) for d in reversed(f"{digits}")]',
        "\n",
        "def add(model, a, b):",
        "    A, B = digits(a), digits(b)",
        f"    output = generate(model, [{_prompt_items(layout)}]){note}",
        task.stop is not None and "    output = output[:-1] if output[-1] == STOP else []",
        f'    return int("".join(map(str, {number}))) if output and max(output) < 10 else -1',
    )


def size_tricks(model: Model) -> list[str]:
    """Describe the properties that reduce the model's number of parameters."""
    c, plan = model.config, model.parametrization
    maker, tricks = model.provenance.get("maker"), list[str]()
    if maker == "program":
        tricks = ["weights set by hand"]
    elif maker == "trainer":  # training from random theta does not learn the formula
        fitted = bool(plan) and build_parametrization(plan).random_init
        tricks = ["trained: the form by hand, its numbers fitted" if fitted else "trained"]
    if plan:
        tricks.append(f"{plan}: {find('parametrization', ref_head(plan)).help}")
    tricks += ["tied head"] * c.tied + ["no norm"] * (c.norm == "none") + ["no MLP"] * (not c.d_mlp)
    if c.positions in ("rotary", "sinusoidal"):
        tricks.append(f"{c.positions} positions, base {c.base:g}")
    return tricks


def _prompt_items(layout: TokenLayout) -> str:
    """Return source code of the prompt's list items: numbers, runs of one token, or digits."""
    items, rest, n = [], list(layout.spots[: layout.first]), layout.digits("a")
    numbers = {
        (name, step): [(name, i) for i in range(n)][::step] for name in "ab" for step in (1, -1)
    }
    while rest:
        (name, token), used = rest[0], 1
        if match := next((key for key, spots in numbers.items() if rest[:n] == spots), None):
            items.append(f"*{match[0].upper()}" + "[::-1]" * (match[1] < 0))
            used = n
        elif name == TOKEN:
            used = len(list(next(iter(groupby(rest)))[1]))
            items.append(f"*[{token}] * {used}" if used > 3 else ", ".join([str(token)] * used))
        else:
            items.append(f"{name.upper()}[{token}]")
        rest = rest[used:]
    return ", ".join(items)


def _adder_task(model: Model) -> Task:
    task = matching_task(model)
    if task is None:
        raise GlassformerError(
            f"export to adderboard — expected a model with an addition task, got {model.name}"
        )
    return task


def _check_names(*texts: list[str]) -> None:
    """Raise an error if a name is defined twice in the file."""
    nodes = (node for group in texts for text in group for node in ast.parse(text).body)
    names = Counter(name for node in nodes if (name := getattr(node, "name", "")))
    if repeated := [name for name, n in names.items() if n > 1]:
        raise GlassformerError(f"export to adderboard — two definitions of {repeated[0]}")


def _quote(text: Any) -> str:
    return json.dumps(_printable(text))


def _printable(text: Any) -> str:
    words = " ".join(str(text).split()).replace('"""', "'''").replace("\\", "/")
    return "".join(c if c.isprintable() else "?" for c in words)

"""To the leaderboard of adders: a Python file with build_model() and add() that needs torch alone.

The module's parameters are what the board counts. A model with a parametrization keeps theta and
its formula, so that a file of adder-least has three parameters in it (what else the formula has,
this count does not show); any other has its arrays. What is written is loaded as the board loads
it, in a process of its own, and asked for sums one at a time; its answers must be ours.
"""

import ast
import json
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

MAX_NUMBERS = 100_000  # numbers in a file
CHECKED_PAIRS = 200  # pairs, after the edge cases
ADDER_SOURCE = '''\
class Adder(nn.Module):
    """The transformer whose arrays are made from theta; theta alone is parameters."""

    def __init__(self):
        super().__init__()
        tensors = {n: torch.tensor(numbers, dtype=DTYPE).reshape(SHAPES[n]) for n, numbers in THETA.items()}
        self.theta = nn.ParameterList(tensors.values())
        self.formula = FORMULA
        with torch.device("meta"):  # shapes without numbers; in a list, for it is no part of the parameters
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
    """The tokens that any model adds to others: always the best one."""
    said = []
    for _ in range(STEPS):
        logits = model(torch.tensor([(tokens + said)[-BLOCK:]]))[0, -1]
        said.append(int(logits.argmax()))
        if said[-1] == STOP:
            break
    return said'''


@bridge("adderboard")
class Adderboard:
    extra, needs, float32 = "torch", ("torch",), False
    files: frozenset[str] = frozenset()

    def check(self, model: Model) -> None:
        check_adder(model, _adder_task(model))
        model = without_base(model)
        held = model.theta or model.weights
        check_finite("adderboard", held)
        if (size := sum(w.size for w in held.values())) > MAX_NUMBERS:
            raise GlassformerError(
                f"export to adderboard — {size:,} numbers are more than a file should hold; "
                "export to torch instead"
            )

    def write(self, model: Model, path: Path) -> list[str]:
        task = _adder_task(model)
        form, kept = check_adder(model, task), without_base(model)
        write_python(path, submission_source(kept, task, form))
        asked = [*EDGE_CASES, *random_pairs(CHECKED_PAIRS)]
        ours = adder_answers(model, task, form, asked)
        said = sandbox_lines(
            path, path.read_bytes(), asked, Limits(), sandbox=False
        )  # our own code
        theirs = [line.get("got") for line in said if line["event"] == "answer"]
        for (a, b), x, y in zip(asked, ours, theirs, strict=True):
            if x != y and (isinstance(x, int) or y != -1):  # -1: no number
                what = f"the file says {a}+{b} = {y}, the model itself {x}"
                raise GlassformerError(f"export to adderboard — {what}")
        right = sum(x == a + b for (a, b), x in zip(asked, ours, strict=True))
        tried = f"{len(EDGE_CASES)} edge cases and {CHECKED_PAIRS} pairs"
        same = f"all answers to {tried} are ours, {right} are right"
        notes = [f"loaded as the board does, one sum at a time: {same}"]
        counted = describe_counts(counts_by_rule(count(kept)))
        notes += [f"{way} {figure}: {means}" for way, figure, means in counted]
        if kept.parametrization != model.parametrization:
            base = "its base is made of numbers too: all weights are parameters in the file"
            notes.append(f"{model.parametrization} — {base}")
        return notes

    def logits(self, path: Path, tokens: Any) -> Any:
        return torch_logits(run_python_file(path)["build_model"]()[0], tokens)


def without_base(model: Model) -> Model:
    """The model as it is counted: without a parametrization that only changes numbers."""
    if model.parametrization and build_parametrization(model.parametrization).base is not None:
        return replace(model, parametrization="", theta={})
    return model


def submission_source(model: Model, task: Task, form: TokenLayout) -> str:
    """The text of the file."""
    check_theta("model", model)
    imports, parts, expression = (
        formula_source(model.parametrization) if model.parametrization else (set(), [], "")
    )
    net = network_definitions(model)
    _check_names(net, parts)
    imports = imports | ({"import math"} if "math." in "".join(net) else set())
    held = (
        _theta_source(model, expression) if model.parametrization else weights_source(model.weights)
    )
    top, bottom = _header_source(model, imports, "\n".join(net)), _add_source(task, form, model)
    return "\n\n\n".join([top, *net, *parts, held, _build_source(model), bottom]) + "\n"


# ── parts ──────────────────────────────────────────────────────────────────────────────────────
def _header_source(model: Model, imports: set[str], net: str) -> str:
    counted = describe_counts(counts_by_rule(count(model)))
    long, wide = max(map(len, COUNT_MEANINGS)), max(len(figure) for _, figure, _ in counted)
    plain = sorted(i for i in imports if "numpy" not in i)
    numpy = sorted(i for i in imports if "numpy" in i)
    ref = _printable(model.name)
    return join_lines(
        '"""A transformer that adds two numbers of ten digits, as a submission to AdderBoard.',
        "",
        f"    {model.config}",
        "",
        f"Written by glassformer from {ref}; SHA-256 of the model:",
        f"{digest(model)}",
        "",
        "How many parameters? By each way of counting:",
        "",
        *(f"    {way:<{long}}  {figure:>{wide}}  {means}" for way, figure, means in counted),
        "",
        "B batch, T positions, S keys, D width of the stream, H heads, K head size, F neurons.",
        '"""',
        "",
        *([*plain, ""] if plain else []),
        *numpy,
        *torch_imports(net),
        "",
        f"DTYPE = torch.{model.dtype}",
        f"BLOCK = {model.config.n_ctx}  # positions it can read",
    )


def _theta_source(model: Model, expression: str) -> str:
    shapes = {name: tuple(w.shape) for name, w in model.weights.items()}
    order = build_parametrization(model.parametrization).theta_shapes(shapes)
    rows = ["THETA = {  # all parameters"]
    for name, t in ((name, model.theta[name]) for name in order):
        if t.ndim < 2:
            rows.append(f"    {_quote(name)}: {t.tolist()!r},")
        else:
            each = (f"        {row!r}," for row in t.reshape(-1, t.shape[-1]).tolist())
            rows += [f"    {_quote(name)}: [", *each, "    ],"]
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


def _add_source(task: Task, form: TokenLayout, model: Model) -> str:
    written = f"{{x:0{form.digits('a')}}}" if form.padded else "{x}"
    asked = form.spots[: form.first]
    marks = sorted({token for name, token in asked if name == TOKEN and token > 9})
    note = "  # " + ", ".join(f"{m}: {model.vocabulary[m]}" for m in marks) if marks else ""
    ones = "said[::-1]" if form.spots[form.first] == ("s", 0) else "said"
    return join_lines(
        f"STEPS, STOP = {task.steps(())}, {task.stop}  "
        "# tokens of an answer, and the one that ends it",
        "\n",
        GENERATE_SOURCE,
        "\n",
        "def digits(x):",
        '    """The ones first."""',
        f'    return [int(d) for d in reversed(f"{written}")]',
        "\n",
        "def add(model, a, b):",
        "    A, B = digits(a), digits(b)",
        f"    said = generate(model, [{_prompt_items(form)}]){note}",
        task.stop is not None and "    said = said[:-1] if said[-1] == STOP else []",
        f'    return int("".join(map(str, {ones}))) if said and max(said) < 10 else -1',
    )


def size_tricks(model: Model) -> list[str]:
    """What makes it small, from what it is."""
    c = model.config
    maker, found = model.provenance.get("maker"), list[str]()
    if maker == "program":
        found = ["weights set by hand"]
    elif maker == "trainer":  # what a form gives away is not learned
        formed = (
            bool(model.parametrization) and build_parametrization(model.parametrization).random_init
        )
        found = ["trained: the form by hand, its numbers fitted" if formed else "trained"]
    if model.parametrization:
        form = find("parametrization", ref_head(model.parametrization))
        found.append(f"{model.parametrization}: {form.help}")
    found += ["tied head"] * c.tied + ["no norm"] * (c.norm == "none") + ["no MLP"] * (not c.d_mlp)
    if c.positions in ("rotary", "sinusoidal"):
        found.append(f"{c.positions} positions, base {c.base:g}")
    return found


# ── pieces ─────────────────────────────────────────────────────────────────────────────────────
def _prompt_items(form: TokenLayout) -> str:
    """The prompt as items of a list: runs of the same token, whole numbers, or digit by digit."""
    out, rest, n = [], list(form.spots[: form.first]), form.digits("a")
    while rest:
        orders = [(x, step) for x in "ab" for step in (1, -1)]
        whole = [(x, s) for x, s in orders if rest[:n] == [(x, i) for i in range(n)][::s]]
        if whole:
            name, step = whole[0]
            out.append(f"*{name.upper()}" + "[::-1]" * (step < 0))
            rest = rest[n:]
        elif rest[0][0] == TOKEN:
            same, token = len(list(next(iter(groupby(rest)))[1])), str(rest[0][1])
            out.append(f"*[{token}] * {same}" if same > 3 else ", ".join([token] * same))
            rest = rest[same:]
        else:
            out.append(f"{rest[0][0].upper()}[{rest[0][1]}]")
            rest = rest[1:]
    return ", ".join(out)


def _adder_task(model: Model) -> Task:
    task = matching_task(model)
    if task is None:
        what = "expected a model for a task of addition, whose tokens it has"
        raise GlassformerError(f"export to adderboard — {what}")
    return task


def _check_names(*texts: list[str]) -> None:
    """Nothing in the file may be defined twice."""
    seen: set[str] = set()
    for node in (n for group in texts for text in group for n in ast.parse(text).body):
        name = getattr(node, "name", "")
        if name and name in seen:
            what = f"cannot be written out: two definitions of {name}"
            raise GlassformerError(f"export to adderboard — {what}")
        seen.add(name)


def _quote(text: Any) -> str:
    return json.dumps(_printable(text))


def _printable(text: Any) -> str:
    words = " ".join(str(text).split()).replace('"""', "'''").replace("\\", "/")
    return "".join(c if c.isprintable() else "?" for c in words)

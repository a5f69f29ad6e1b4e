"""Activation patching and the interchange test: use activations of one run in another run.

Patching runs the corrupted input with activations of the clean one. Let d be the logit of the clean
input's prediction minus the logit of the corrupted input's prediction, at position `at`. The
recovered share is

    (d patched − d corrupted) / (d clean − d corrupted):

0 if the patch changes nothing, 1 if it restores the clean prediction; for a batch, the ratio of the
sums.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ...core.backend import Array
from ...core.components import Component, find_component, label_of
from ...core.hooks import check_hook_names, record, replace_activations
from ...core.model import Hook, Model
from ...tasks.base import Task
from ...tasks.token_layout import answer_names
from ...utils.argcheck import validate_method
from ...utils.errors import GlassformerError, value_error
from ...utils.results import Displayable, Result
from ...verification.evaluation import correct_logits
from .ablate import replace_at

# Name of a grid -> the activation that it patches in each layer.
GRID_HOOKS = {name: f"hook_{name}" for name in ("resid_pre", "attn_out", "mlp_out")}
GRID_HOOKS["heads"] = "attn.hook_z"
PER_HEAD_HOOKS = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_rot_q", "hook_rot_k")  # [B,T,H,K]
PATTERN_HOOKS = ("hook_attn_scores", "hook_pattern")  # [B,H,T,S]
INTERCHANGEABLE_KINDS = ("head", "attention", "mlp", "neuron")
MAX_PAIR_DRAWS = 50
Indices = int | Sequence[int] | None


@dataclass(frozen=True)
class Patch(Displayable):
    """Logits [B,V] at one position of a patched run and of its clean and corrupted runs."""

    clean: Array
    corrupted: Array
    patched: Any
    answers: tuple[Any, Any]  # predictions [B] on the clean and on the corrupted input

    @property
    def recovered(self) -> float:
        """The recovered share of the logit difference."""
        rows, (a, b) = np.arange(len(self.clean)), self.answers
        runs = (self.clean, self.corrupted, self.patched)
        clean, corrupted, patched = (x[rows, a] - x[rows, b] for x in runs)
        return float((patched - corrupted).sum() / (clean - corrupted).sum())


@dataclass(frozen=True)
class PatchGrid(Result):
    """The recovered share of each patch in a grid of layers by positions or heads."""

    what: str  # name of the activation, or "heads"
    rows: list[str]
    columns: list[str]
    values: Array  # [rows, columns]


def patch(
    model: Model, clean: Array, corrupted: Array, names: str | Sequence[str],
    positions: Indices = None, heads: Indices = None, at: int = -1,
) -> Patch:  # fmt: skip
    """Run the corrupted tokens with activations of the clean run, as `gf.patch` documents.

    Tokens are [T] or [B,T]. For patterns and scores, positions are rows.

    Raises:
        GlassformerError: A name is unknown, an index is out of range, or both inputs give equal
            predictions.
    """
    chosen = [names] if isinstance(names, str) else names
    return PatchingRun(model, clean, corrupted, at).patch(chosen, positions, heads)


def patch_positions(
    model: Model, clean: Array, corrupted: Array, activation: str = "resid_pre", at: int = -1
) -> PatchGrid:
    """Patch resid_pre, attn_out or mlp_out of each layer at each position in turn: [L,T]."""
    run, hooks, grid = grid_setup(model, clean, corrupted, activation, at)
    columns, heads = range(len(grid.columns)), activation == "heads"
    places = [(None, i) if heads else (i, None) for i in columns]  # None: all positions or heads
    values = [[run.patch([name], *place).recovered for place in places] for name in hooks]
    return replace(grid, values=np.array(values))


def patch_heads(model: Model, clean: Array, corrupted: Array, at: int = -1) -> PatchGrid:
    """Patch the z of each head in turn, at all positions: [L,H]."""
    return patch_positions(model, clean, corrupted, "heads", at)


class PatchingRun:
    """A clean and a corrupted run, computed once for many patches."""

    def __init__(self, model: Model, clean: Array, corrupted: Array, at: int) -> None:
        self.model = model.numpy()
        self.clean, self.corrupted = (np.atleast_2d(np.asarray(x)) for x in (clean, corrupted))
        self.at, T = at, self.corrupted.shape[1]
        if self.clean.shape != self.corrupted.shape:
            shapes = f"{list(self.clean.shape)} and {list(self.corrupted.shape)}"
            raise GlassformerError(f"clean, corrupted: expected tokens of one shape, got {shapes}")
        if not -T <= at < T:
            raise GlassformerError(f"at: expected a position from 0 to {T - 1}, got {at}")
        logits, self.cache = record(self.model, self.clean)
        self.logits = logits[:, at], self.model(self.corrupted)[:, at]
        self.top_tokens = self.logits[0].argmax(-1), self.logits[1].argmax(-1)
        if (self.top_tokens[0] == self.top_tokens[1]).any():
            expected = "inputs with different predictions"
            raise value_error("clean, corrupted:", expected, self.top_tokens[0].tolist())

    def patch(self, names: Sequence[str], positions: Indices, heads: Indices) -> Patch:
        hook = patch_hook(self.model, self.cache, names, positions, heads)
        patched = self.model(self.corrupted, hook=hook)[:, self.at]
        return Patch(*self.logits, patched, self.top_tokens)


def grid_setup(
    model: Model, clean: Array, corrupted: Array, activation: str, at: int
) -> tuple[PatchingRun, list[str], PatchGrid]:
    """Return both runs, the activation to patch for each row of a grid, and the empty grid."""
    if activation not in GRID_HOOKS:
        raise value_error("activation:", f"one of {', '.join(GRID_HOOKS)}", activation)
    layers = model.mlp_layers if activation == "mlp_out" else list(range(model.config.n_layers))
    if not layers:
        missing = "no MLP" if model.config.n_layers else "n_layers=0"
        raise GlassformerError(f"patching: expected a model with {activation}, got {missing}")
    run = PatchingRun(model, clean, corrupted, at)
    columns = [str(t) for t in range(run.corrupted.shape[1])]
    if activation == "heads":
        columns = [f"head {h}" for h in range(model.config.n_heads)]
    elif len(run.clean) == 1:
        pairs = zip(run.clean[0], run.corrupted[0], strict=True)
        names = [[model.vocabulary[int(t)] for t in pair] for pair in pairs]
        columns = [a if a == b else f"{a}/{b}" for a, b in names]
    hooks = [f"blocks.{i}.{GRID_HOOKS[activation]}" for i in layers]
    return run, hooks, PatchGrid(activation, [f"layer {i}" for i in layers], columns, None)


def patch_hook(
    model: Model, cache: Any, names: Sequence[str], positions: Indices = None, heads: Indices = None
) -> Hook:
    """Return a hook that inserts activations or components of another run."""
    places = {hook: [()] for hook in names if "hook" in hook or hook.startswith("blocks.")}
    check_hook_names(model, places)
    for part in (find_component(model, name) for name in names if name not in places):
        if not part.hooks:
            raise GlassformerError(f"patching: expected an activation, got {part.name}")
        for hook in part.hooks:
            places.setdefault(hook, []).append(part.index_in_activation())
    if "hook_pos_embed" in places:
        raise value_error("patching:", "an activation that depends on the input", "hook_pos_embed")
    for name in places:
        if heads is not None and not name.endswith((*PER_HEAD_HOOKS, *PATTERN_HOOKS)):
            hooks = ", ".join((*PER_HEAD_HOOKS, *PATTERN_HOOKS))
            raise value_error("heads:", f"an activation in {hooks}", name)
    chosen = {"positions": positions, "heads": heads}

    def put_in(name: str, value: Array) -> Array:
        if name not in places:
            return value
        axes = {"positions": 1, "heads": 2}
        if name.endswith(PATTERN_HOOKS):
            axes = {"positions": 2, "heads": 1}
        mask = np.zeros(value.shape, dtype=bool)
        for place in places[name]:
            mask[place] = True
        for kind, indices in chosen.items():
            if indices is not None:
                axis, n = axes[kind], value.shape[axes[kind]]
                if not np.size(indices) or np.max(indices) >= n or np.min(indices) < -n:
                    raise value_error(f"{kind}:", f"numbers from 0 to {n - 1}", indices)
                on = np.isin(np.arange(n), np.asarray(indices) % n)
                mask = mask & on.reshape([n if a == axis else 1 for a in range(value.ndim)])
        return np.where(mask, cache[name], value)

    return put_in


# ── the interchange test ───────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class TokenInterchange(Displayable):
    """The effect of a patch on one answer token. The sum of `shares` and `other` is 1."""

    token: int  # index of the answer token, from 0
    name: str  # name of the token: y1, …
    cases: int
    shares: dict[str, float]  # explanation -> share of cases in which it predicts the whole answer
    other: float  # share of cases with any other answer


@dataclass(frozen=True)
class Interchange(Result):
    """The information carried by a component, for each answer token."""

    what: str
    name: str  # label of the component
    moved: list[TokenInterchange]

    @validate_method
    def explanation_shares(self, explanation: str) -> list[float]:
        """Return the share of an explanation for each answer token to which it applies."""
        return [m.shares[explanation] for m in self.moved if explanation in m.shares]

    def __str__(self) -> str:
        lines = [self.what + (f" ({self.name})" if self.name else "")]
        for m in self.moved:
            items = (m.shares | {"other": m.other}).items()
            shares = ", ".join(f"{name} {share:.1%}" for name, share in items)
            lines.append(f"  {m.name}: {shares} of {m.cases}")
        return "\n".join(lines)


def interchange(
    model: Model, task: Task, component: str, n: int = 500, seed: int = 0
) -> Interchange:
    """Test which information about the answer a component carries.

    For answer token i, pairs of inputs are drawn, base and source. The model reads the base with
    its right answer (teacher forcing). At the row that predicts token i, the component gets its
    value from the source's run. Each explanation (`task.counterfactual_answers`) then predicts an
    answer that differs from the right answer at most at token i. For addition with the ones first,
    the explanations are that the digit is unchanged, or follows the source's column, carry or both.

    Both inputs have equal tokens at that row, the explanations predict different tokens, and a pair
    counts only if the model is right on both inputs. The result has the shares of the explanations
    for each answer token with pairs. `gf.interchange` documents the arguments.
    """
    return interchange_each(model, task, [component], n, seed)[0]


def interchange_each(
    model: Model, task: Task, components: Sequence[str], n: int = 500, seed: int = 0,
    pairs: dict[int, Any] | None = None,
) -> list[Interchange]:  # fmt: skip
    """Run `interchange` for several components, sharing the unpatched runs.

    `pairs` caches the drawn pairs for other models with equal task, n and seed.
    """
    parts, model = [find_component(model, name) for name in components], model.numpy()
    for part in parts:
        if part.kind not in INTERCHANGEABLE_KINDS:
            kinds = ", ".join(INTERCHANGEABLE_KINDS)
            raise value_error("interchange:", f"one of {kinds}", part.name)
    if model.config.mask != "causal":
        raise value_error("interchange: mask:", "causal", model.config.mask)
    start, pairs = task.boundary(), {} if pairs is None else pairs
    moved: list[list[TokenInterchange]] = [[] for _ in parts]
    for i, name in enumerate(answer_names(task)):
        if i not in pairs:
            pairs[i] = _draw_pairs(task, i, start, n, np.random.default_rng([seed, i]))
        shares = list(_patched_shares(model, parts, i, start, *pairs[i])) if pairs[i] else []
        for tokens, (cases, by_name) in zip(moved, shares, strict=False):  # may be empty
            other = max(0.0, 1 - sum(by_name.values()))
            tokens.append(TokenInterchange(i, name, cases, by_name, other))
    return [
        Interchange(part.name, label_of(model, part.name), tokens)
        for part, tokens in zip(parts, moved, strict=True)
    ]


def _patched_shares(
    model: Model, parts: Sequence[Component], i: int, start: int, base: Array, source: Array,
    predictions: Any,
) -> Iterator[tuple[int, dict[str, float]]]:  # fmt: skip
    """Patch each component at the row of answer token i; yield its cases and shares."""
    last = base.shape[1] - start
    logits, cache = record(model, source[:, :-1], last, tuple(part.hooks[0] for part in parts))
    right = correct_logits(logits, source[:, start:]).all(1)
    right &= correct_logits(model(base[:, :-1], last=last), base[:, start:]).all(1)
    if not right.any():
        return
    for part in parts:
        name, place = part.hooks[0], (slice(None), i - last, *part.index)  # index from the last row
        replacement = partial(replace_at, place=place, new=cache[name][place])
        hook = replace_activations(model, {name: replacement})
        outputs = model(base[:, :-1], hook=hook, last=last).argmax(-1)[right]  # B n
        shares = {}
        for explanation, token in predictions.items():
            expected = base[right, start:].copy()
            expected[:, i] = token[right]
            shares[explanation] = float((outputs == expected).all(1).mean())
        yield int(right.sum()), shares


def _draw_pairs(task: Task, i: int, start: int, n: int, rng: np.random.Generator) -> Any:
    """Draw n pairs of rows for which all explanations of answer token i differ, if any exist."""
    draws: list[Any] = []
    for attempt in range(MAX_PAIR_DRAWS):
        size = 16 * n if attempt else 2 * n  # most pairs qualify for sums, but few for other tasks
        rows = task.sample(2 * size, rng).reshape(2, size, -1)
        rows = rows[:, task.defined(rows[0]) & task.defined(rows[1])]
        base, source = (task.batch(r)[0] for r in rows)
        predictions = task.counterfactual_answers(rows, i)
        at = start - 1 + i  # the row that predicts token i
        fits = base[:, at] == source[:, at]
        for x, y in combinations(predictions.values(), 2):
            fits &= x != y
        draws.append([x[fits] for x in (base, source, *predictions.values())])
        count = sum(len(draw[0]) for draw in draws)
        if count >= n or (not count and attempt >= MAX_PAIR_DRAWS // 10):
            break
    if not count:
        return None
    base, source, *tokens = (np.concatenate(parts)[:n] for parts in zip(*draws, strict=True))
    return base, source, dict(zip(predictions, tokens, strict=True))

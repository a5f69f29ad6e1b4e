"""Activation patching: what one input has at a place, put into the run on another.

    patch(model, clean, corrupted, "blocks.0.hook_resid_pre", positions=2).recovered
    patch_positions(model, clean, corrupted).values       every layer and position
    patch_heads(model, clean, corrupted).values           every layer and head
    interchange(model, task, "head 0.0")                  does it carry the column, the carry, both or neither?

The run is the corrupted one; what is put in comes from the clean one. Let d be the logit of what
the model says on the clean input less that of what it says on the corrupted one, at the position
`at`. The recovered share is

    (d patched − d corrupted) / (d clean − d corrupted):

0 where the patch does nothing, 1 where it brings back all; for a batch, the ratio of the sums.
"""  # noqa: E501

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...core.backend import Array
from ...core.components import Component, find_component, label_of
from ...core.hooks import check_hook_names, record, replace_activations
from ...core.model import Hook, Model
from ...tasks.base import Task
from ...tasks.token_layout import answer_names
from ...utils.errors import GlassformerError
from ...utils.results import Displayable, Result
from ...verification.evaluation import correct_logits
from .ablate import replace_at

STREAM_ACTIVATIONS = ("resid_pre", "attn_out", "mlp_out")
PER_HEAD_HOOKS = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_rot_q", "hook_rot_k")  # [B,T,H,K]
PATTERN_HOOKS = ("hook_attn_scores", "hook_pattern")  # [B,H,T,S]
INTERCHANGEABLE_KINDS = ("head", "attention", "mlp", "neuron")
MAX_PAIR_DRAWS = 50  # draws of pairs before giving up
Indices = int | Sequence[int] | None


@dataclass(frozen=True)
class Patch(Displayable):
    """One patched run beside the two that it is made of: logits [B,V] at one position."""

    clean: Array
    corrupted: Array
    patched: Any
    answers: tuple[Any, Any]  # tokens [B]: what is said on the clean and on the corrupted input

    @property
    def recovered(self) -> float:
        rows, (a, b) = np.arange(len(self.clean)), self.answers
        runs = (self.clean, self.corrupted, self.patched)
        clean, corrupted, patched = (x[rows, a] - x[rows, b] for x in runs)
        return float((patched - corrupted).sum() / (clean - corrupted).sum())


@dataclass(frozen=True)
class PatchGrid(Result):
    """The recovered share for every place of a grid."""

    what: str  # what was patched
    rows: list[str]
    columns: list[str]
    values: Array  # [rows, columns]


def patch(
    model: Model, clean: Array, corrupted: Array, names: str | Sequence[str],
    positions: Indices = None, heads: Indices = None, at: int = -1,
) -> Patch:  # fmt: skip
    """Runs the corrupted tokens with the named activations (or parts, such as "head 0.1") of the
    clean ones, [T] or [B,T] each.

    `positions` and `heads`: only there (for hook_pattern and hook_attn_scores: rows that ask).
    `at`: whose logits.
    """
    chosen = [names] if isinstance(names, str) else names
    return PatchingRun(model, clean, corrupted, at).patch(chosen, positions, heads)


def patch_positions(
    model: Model, clean: Array, corrupted: Array, activation: str = "resid_pre", at: int = -1
) -> PatchGrid:
    """The stream (resid_pre), or what attention or the MLP wrote, place by place: [L,T]."""
    run, hooks, rows, columns = position_grid(model, clean, corrupted, activation, at)
    places = [(t, None) for t in range(len(columns))]
    return PatchGrid(activation, rows, columns, run.grid(hooks, places))


def patch_heads(model: Model, clean: Array, corrupted: Array, at: int = -1) -> PatchGrid:
    """What each head read, at all positions at once: [L,H]."""
    run, hooks, rows, columns = head_grid(model, clean, corrupted, at)
    places = [(None, h) for h in range(len(columns))]
    return PatchGrid("heads", rows, columns, run.grid(hooks, places))


class PatchingRun:
    """Both runs, made once for many patches."""

    def __init__(self, model: Model, clean: Array, corrupted: Array, at: int) -> None:
        self.model = model.numpy()
        self.clean, self.corrupted = (np.atleast_2d(np.asarray(x)) for x in (clean, corrupted))
        self.at, T = at, self.corrupted.shape[1]
        if self.clean.shape != self.corrupted.shape:
            expected = "the clean and the corrupted tokens must be as many"
            shapes = f"{list(self.clean.shape)} and {list(self.corrupted.shape)}"
            raise GlassformerError(f"patching — {expected}, got {shapes}")
        if not -T <= at < T:
            expected = f"expected a position from 0 to {T - 1} to read the logits at"
            raise GlassformerError(f"patching — {expected}, got {at}")
        logits, self.cache = record(self.model, self.clean)
        self.logits = logits[:, at], self.model(self.corrupted)[:, at]
        self.top_tokens = self.logits[0].argmax(-1), self.logits[1].argmax(-1)
        if (self.top_tokens[0] == self.top_tokens[1]).any():
            same = "the model says the same after both inputs"
            raise GlassformerError(f"patching — {same}: there is nothing to recover")

    def patch(self, names: Sequence[str], positions: Indices, heads: Indices) -> Patch:
        tap = patch_hook(self.model, self.cache, names, positions, heads)
        return Patch(
            *self.logits, self.model(self.corrupted, hook=tap)[:, self.at], self.top_tokens
        )

    def grid(self, hooks: Sequence[str], places: Sequence[Any]) -> Any:
        """Each activation patched at each place: (position, head), or None for all."""
        each = [[self.patch([name], t, h).recovered for t, h in places] for name in hooks]
        return np.array(each)


# both runs; the activations to patch, one a row; what rows and columns are called
GridSetup = tuple[PatchingRun, list[str], list[str], list[str]]


def position_grid(
    model: Model, clean: Array, corrupted: Array, activation: str, at: int
) -> GridSetup:
    """Every layer that has one, and every position."""
    if activation not in STREAM_ACTIVATIONS:
        raise GlassformerError(
            f"patching {activation!r} — expected one of {', '.join(STREAM_ACTIVATIONS)}"
        )
    layers = [
        i for i in range(model.config.n_layers) if activation != "mlp_out" or model.has_mlp(i)
    ]
    if not layers:
        missing = "no MLP" if model.config.n_layers else "no layers"
        raise GlassformerError(f"patching {activation} — this model has {missing}")
    run = PatchingRun(model, clean, corrupted, at)
    columns = [str(t) for t in range(run.corrupted.shape[1])]
    if len(run.clean) == 1:
        pairs = zip(run.clean[0], run.corrupted[0], strict=True)
        words = [[model.vocabulary[int(t)] for t in pair] for pair in pairs]
        columns = [a if a == b else f"{a}/{b}" for a, b in words]
    return (
        run,
        [f"blocks.{i}.hook_{activation}" for i in layers],
        [f"layer {i}" for i in layers],
        columns,
    )


def head_grid(model: Model, clean: Array, corrupted: Array, at: int) -> GridSetup:
    """Every layer, and every head."""
    if not model.config.n_layers:
        raise GlassformerError("patching heads — this model has no layers")
    run, layers = PatchingRun(model, clean, corrupted, at), range(model.config.n_layers)
    columns = [f"head {h}" for h in range(model.config.n_heads)]
    hooks, rows = [f"blocks.{i}.attn.hook_z" for i in layers], [f"layer {i}" for i in layers]
    return run, hooks, rows, columns


def patch_hook(
    model: Model, cache: Any, names: Sequence[str], positions: Indices = None, heads: Indices = None
) -> Hook:
    """A tap that puts in the named activations or parts of another run (`cache`, as `record` gives
    it).
    """
    places = {hook: [()] for hook in names if "hook" in hook or hook.startswith("blocks.")}
    check_hook_names(model, places)
    for part in (find_component(model, name) for name in names if name not in places):
        if not part.hooks:
            raise GlassformerError(f"patching {part.name} — it is the same whatever the input")
        for hook in part.hooks:
            places.setdefault(hook, []).append(part.index_in_activation())
    names = list(places)
    if "hook_pos_embed" in names:
        same = "the same whatever the input: patching it does nothing"
        raise GlassformerError(f"hook 'hook_pos_embed' — {same}")
    for name in names:
        if heads is not None and not name.endswith((*PER_HEAD_HOOKS, *PATTERN_HOOKS)):
            others = f"those with heads end in {', '.join(PER_HEAD_HOOKS)}"
            raise GlassformerError(f"hook {name!r} — has no heads; {others}")
    chosen = {"position": positions, "head": heads}

    def tap(name: str, value: Array) -> Array:
        if name not in names:
            return value
        axes = (
            {"position": 2, "head": 1}
            if name.endswith(PATTERN_HOOKS)
            else {"position": 1, "head": 2}
        )
        there = np.zeros(value.shape, dtype=bool)
        for place in places[name]:
            there[place] = True
        for kind, which in chosen.items():
            if which is not None:
                axis, n = axes[kind], value.shape[axes[kind]]
                if not np.size(which) or np.max(which) >= n or np.min(which) < -n:
                    expected = f"expected numbers from 0 to {n - 1}"
                    raise GlassformerError(f"patching {kind} {which} — {expected}")
                on = np.isin(np.arange(n), np.asarray(which) % n)
                there = there & on.reshape([n if a == axis else 1 for a in range(value.ndim)])
        return np.where(there, cache[name], value)

    return tap


# ── the interchange test ───────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class TokenInterchange(Displayable):
    """What patching a part did to one token of the answer. The shares and `other` add up to 1."""

    token: int  # of the answer, from 0
    name: str  # of the token: y1, …
    cases: int
    shares: dict[str, float]  # explanation -> share of cases in which it foretold the whole answer
    other: float  # something else came out, or other tokens changed too


@dataclass(frozen=True)
class Interchange(Result):
    """What a part carries, by answer token."""

    what: str
    name: str  # what people call the part
    moved: list[TokenInterchange]

    def explanation_shares(self, explanation: str) -> list[float]:
        """The share of one explanation for the tokens where it differs from the others."""
        return [m.shares[explanation] for m in self.moved if explanation in m.shares]

    def __str__(self) -> str:
        lines = [self.what + (f" ({self.name})" if self.name else "")]
        for m in self.moved:
            each = m.shares | {"other": m.other}
            shares = ", ".join(f"{name} {share:.1%}" for name, share in each.items())
            lines.append(f"  {m.name}: {shares} of {m.cases}")
        return "\n".join(lines)


def interchange(
    model: Model, task: Task, component: str, n: int = 500, seed: int = 0
) -> Interchange:
    """Whether a part (a head, attention, an MLP, a neuron) carries what an answer token is made of.

    For token i of the answer two inputs are drawn, base and source. The model reads the base with
    its right answer written out (teacher forcing), and at the one row that says token i the part
    has what it has in the source's run at that row. Written digits are given and not decoded: a
    changed digit that is fed back would change what follows for a good reason. So under each
    explanation of the part exactly one answer must come out, the same as before but for token i.
    Both inputs have the same token at that row, so that what the row holds by itself fits both; and
    a case counts only if the model is right on both.

    What each explanation foretells, the task says (`task.foretold`): of any task that the token
    stays, or is the source's own; of addition, ones first, also that only the column or only the
    carry moves. Pairs are drawn such that all that is foretold differs. A token for which no pair
    is found (it is always the same) is left out.
    """
    return interchange_each(model, task, [component], n, seed)[0]


def interchange_each(
    model: Model, task: Task, components: Sequence[str], n: int = 500, seed: int = 0,
    pairs: dict[int, Any] | None = None,
) -> list[Interchange]:  # fmt: skip
    """The same of several parts: what the model does untouched is computed once for all.

    `pairs`: filled with those that were drawn, for the next model of the same task, n and seed.
    """
    found, model = [find_component(model, what) for what in components], model.numpy()
    for part, what in zip(found, components, strict=True):
        if part.kind not in INTERCHANGEABLE_KINDS:
            wanted = "expected a head, attention, mlp or neuron"
            raise GlassformerError(f"interchange of {what} — {wanted}")
    if model.config.mask != "causal":
        why = "written digits must not be seen before their turn"
        raise GlassformerError(f"interchange — needs a causal model: {why}")
    start = task.boundary()
    moved: list[list[TokenInterchange]] = [[] for _ in found]
    drawn = {} if pairs is None else pairs
    for i, name in enumerate(answer_names(task)):
        if i not in drawn:
            drawn[i] = _draw_pairs(task, i, start, n, np.random.default_rng([seed, i]))
        told = list(_patched_shares(model, found, i, start, *drawn[i])) if drawn[i] else []
        for each, (cases, shares) in zip(moved, told, strict=False):  # none, or one for each part
            each.append(
                TokenInterchange(i, name, cases, shares, max(0.0, 1 - sum(shares.values())))
            )
    return [
        Interchange(part.name, label_of(model, part.name), each)
        for part, each in zip(found, moved, strict=True)
    ]


def _patched_shares(
    model: Model, found: Sequence[Component], i: int, start: int, base: Array, source: Array,
    foretold: Any,
) -> Iterator[tuple[int, dict[str, float]]]:  # fmt: skip
    """Patches each part at the row that says answer token i: how many cases, and the shares of the
    explanations. Nothing if the model is right on no pair.
    """
    last = base.shape[1] - start
    hooks, cache = {part.hooks[0] for part in found}, dict[str, Array]()

    def keep(name: str, value: Array) -> Array:
        if name in hooks:
            cache[name] = value
        return value

    logits = model(source[:, :-1], hook=keep, last=last)
    right = correct_logits(logits, source[:, start:]).all(1)
    right &= correct_logits(model(base[:, :-1], last=last), base[:, start:]).all(1)
    if not right.any():
        return
    for part in found:
        # rows are counted from the end
        hook, place = part.hooks[0], (slice(None), i - last, *part.index)
        tap = replace_activations(
            model, {hook: partial(replace_at, place=place, new=cache[hook][place])}
        )
        said = model(base[:, :-1], hook=tap, last=last).argmax(-1)[right]  # B n
        shares = {}
        for name, token in foretold.items():
            expected = base[right, start:].copy()
            expected[:, i] = token[right]
            shares[name] = float((said == expected).all(1).mean())
        yield int(right.sum()), shares


def _draw_pairs(task: Task, i: int, start: int, n: int, rng: np.random.Generator) -> Any:
    """n pairs of rows that tell explanations of answer token i apart, and what each foretells."""
    found: list[Any] = []
    for attempt in range(MAX_PAIR_DRAWS):
        # few pairs of sums will do, most pairs of other inputs
        many = 2 * n if not attempt else 16 * n
        rows = task.sample(2 * many, rng).reshape(2, many, -1)
        rows = rows[:, task.defined(rows[0]) & task.defined(rows[1])]
        base, source = (task.batch(r)[0] for r in rows)
        foretold = task.counterfactual_answers(rows, i)
        good = base[:, start - 1 + i] == source[:, start - 1 + i]  # the same token at the row
        names = list(foretold)
        for a in range(len(names)):
            for b in range(a):
                good &= foretold[names[a]] != foretold[names[b]]
        found.append([base[good], source[good], *(foretold[name][good] for name in names)])
        count = sum(len(f[0]) for f in found)
        if count >= n or (not count and attempt >= MAX_PAIR_DRAWS // 10):
            break
    if not count:
        return None
    base, source, *tokens = (np.concatenate(parts)[:n] for parts in zip(*found, strict=True))
    return base, source, dict(zip(names, tokens, strict=True))

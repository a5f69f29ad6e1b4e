"""Looking for a pair of numbers that a model gets wrong, where a proof did not close.

Sampling finds errors that are common. This finds rare ones: in every open case, going through the
columns (see carry_dp.py) gives the pair that drives the stream furthest in a direction, and the
direction that takes the lead away fastest is found by tilting the stream a little. Whatever comes
up is only a suspect: the model is run on it.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core.decoding import decode
from ..core.model import NORMS, Model, Scope, affine, mlp, residual
from ..tasks.base import Task
from ..utils.errors import GlassformerError
from ..verification.evaluation import chunk_size, row_margins
from .affine_arithmetic import Real, Reals
from .bounds import Bounder, Bounds
from .carry_dp import maximizing_pair
from .layout import SumLayout

MAX_SAMPLE_ROWS = 20_000  # rows at random, and the edges
WORST_CASES_PER_TOKEN = 8  # open cases to look into, for each position and last token
MAX_OPEN_BOUNDS = 60  # positions with a last token
MAX_SAMPLE_SCORES = (
    2 * 10**7
)  # scores that are computed of rows at random, and of edges: fewer rows of long texts


class BatchDependent(GlassformerError):
    """A row is wrong when it is run in a batch, and right when it is run alone."""


def sample_counterexample(model: Model, task: Task, seed: int = 0) -> dict[str, Any] | None:
    """A counterexample among the edge cases and a sample, or None."""
    tokens, answer = task.batch(task.rows(0, 1))
    most = max(4, MAX_SAMPLE_SCORES // int(tokens.size * answer.sum()))
    sample, edges = (
        task.sample(min(MAX_SAMPLE_ROWS, most), np.random.default_rng(seed)),
        task.edges(),
    )
    if len(edges) > most:
        edges = edges[np.linspace(0, len(edges) - 1, most).astype(int)]
    return first_counterexample(model, task, np.concatenate([edges, sample]))


def refute(
    model: Model, task: Task, bounder: Bounder, open_: Iterable[Bounds], seed: int = 0
) -> dict[str, Any] | None:
    """A counterexample from the open cases, run again to show it, or None."""
    rng = np.random.default_rng(seed)
    dependent = None
    for bounds in itertools.islice(open_, MAX_OPEN_BOUNDS):
        rows = np.array(candidate_pairs(model, bounder, bounds, rng), task.row_type)
        try:
            if found := first_counterexample(model, task, rows):
                return found
        except BatchDependent as e:
            dependent = e
    if dependent:
        raise dependent
    return None


def first_counterexample(model: Model, task: Task, rows: Reals) -> dict[str, Any] | None:
    """The first of some rows that the model gets wrong when it is run on it alone, or None.

    Raises BatchDependent if rows are wrong in a batch and none of those tried alone is wrong.
    """
    chunk, dependent = chunk_size(model, task), ""
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        tokens, answer = task.batch(part)
        margin = row_margins(model, tokens, answer)
        for i in np.nonzero(~(margin > 0))[0][:8]:
            if told := verify_counterexample(model, task, part[i]):
                return told
            text = task.vocabulary.decode(tokens[i, : int(answer[i].argmax())])
            dependent = dependent or f"{text} is wrong in a batch of {len(part):,} rows"
    if dependent:
        raise BatchDependent(f"{dependent}, and right when it is run alone")
    return None


def verify_counterexample(model: Model, task: Task, row: Reals) -> dict[str, Any] | None:
    """The row as a counterexample, if the model run on it alone has it wrong. A tie is wrong."""
    tokens, answer = task.batch(row[None])
    margin = float(row_margins(model, tokens, answer)[0])
    prompt, expected = tokens[0, : int(answer[0].argmax())], tokens[0][answer[0]]
    try:
        text = decode(model, prompt, len(expected), stop=task.stop)
        said = task.vocabulary.decode(text[len(prompt) :])
    except GlassformerError as e:
        said = str(e)
    right = task.vocabulary.decode(expected)
    if said == right and margin > 0:
        return None
    return {
        "row": [int(x) for x in row], "input": task.vocabulary.decode(prompt), "expected": right,
        "got": said if said != right else f"{said} by a tie", "margin": margin,
    }  # fmt: skip


def candidate_pairs(
    model: Model, bounder: Bounder, bounds: Bounds, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Pairs of numbers from the open cases of a position with one last token."""
    layout, cases, row = bounder.layout, bounds.cases, bounds.row
    if bounds.group.radius:
        return [(0, 0)]  # of a stretch no numbers can be read off
    lead = np.nan_to_num(bounds.margin.astype(float), nan=-np.inf)
    worst = np.argsort(lead)[:WORST_CASES_PER_TOKEN]
    worst = worst[~(lead[worst] > 0)]
    right = bounder.right_tokens(bounds.group, cases)
    S = row + 1
    value = np.einsum("vshk,hkd->hsvd", bounder.tables.v.mid[:, :S], bounder.W_O)  # H S V D
    possible = bounder.possible[:S]
    out = []
    with np.errstate(all="ignore"):
        for i in worst:
            noise = np.where(possible, rng.gumbel(size=(2, *possible.shape)), 0).astype(Real)
            found = [maximizing_pair(layout, row, terms, cases, i) for terms in noise]
            for pair in list(found):
                for rival in dict.fromkeys([int(bounds.rival[i]), *adjacent_digits(right[i])]):
                    if rival == right[i] or rival >= model.config.d_vocab:
                        continue
                    for _ in range(2):  # downhill, with the slope where the last one led
                        terms = rival_margin_terms(
                            model, bounder, bounds, value, pair, int(right[i]), rival
                        )
                        if not np.isfinite(terms).all():
                            break
                        pair = maximizing_pair(layout, row, np.where(possible, terms, 0), cases, i)
                        found.append(pair)
            out += found
    return list(dict.fromkeys(out)) or [(0, 0)]


def adjacent_digits(right: int) -> list[int]:
    """The digits beside the right one."""
    return [d for d in (right - 1, right + 1) if 0 <= d < 10] if right < 10 else []


def rival_margin_terms(
    model: Model, bounder: Bounder, bounds: Bounds, value: Reals, pair: tuple[int, int], right: int,
    rival: int,
) -> Reals:  # fmt: skip
    """What each token does to the rival's lead, to first order, seen from a pair: [S,V]."""
    row = bounds.row
    weight = bounder.weights(row, bounds.token).mid
    tokens = tokens_of_pair(bounder.layout, pair)[: row + 1]
    at = np.arange(row + 1), tokens
    w = weight[:, at[0], at[1]]  # H S
    total = w.sum(1)  # H
    mean = np.einsum("hs,hsd->hd", w, value[:, at[0], at[1]]) / total[:, None]  # H D
    b = bounder.tables.array("attn.b_O")
    x = bounder.tables.stream.mid[bounds.token, row] + mean.sum(0) + (0 if b is None else b)  # D
    step = np.maximum(np.abs(mean).max(0), np.abs(value).mean((0, 1, 2)) * 1e-6) * 1e-4 + 1e-300
    probes = x + np.concatenate([np.diag(step), -np.diag(step)])  # 2D D
    lead = logits_after_attention(model, probes)[:, [right, rival]] @ np.array([-1.0, 1.0])
    slope = (lead[: len(x)] - lead[len(x) :]) / (2 * step)  # D
    along = np.einsum("hsvd,d->hsv", value - mean[:, None, None], slope)
    terms: Reals = (weight * along / total[:, None, None]).sum(0)  # S V
    return terms


def logits_after_attention(model: Model, x: Reals) -> Any:
    """From the stream after attention [B,D] to logits [B,V], in float64."""
    c = model.config
    weights = {n: np.asarray(w, dtype=np.float64) for n, w in model.weights.items()}
    at = Scope(weights, None)
    block = at / f"blocks.{c.n_layers - 1}"
    y = np.asarray(x, dtype=np.float64)[:, None]  # B 1 D
    y = y if c.norm_first else NORMS[c.norm](c, block / "ln1", y)
    if block.get("mlp.W_out") is not None:
        y = residual(c, block / "ln2", y, lambda z: mlp(c, block / "mlp", z))
    y = NORMS[c.norm](c, at / "ln_final", y) if c.norm_first else y
    W_U = weights["embed.W_E"].T if c.tied else at["unembed.W_U"]
    return affine(y, W_U, at.get("unembed.b_U"))[:, 0]


def tokens_of_pair(layout: SumLayout, pair: tuple[int, int]) -> Reals:
    """The text of a pair of numbers, answer included."""
    return np.array(layout.format.tokens({"a": pair[0], "b": pair[1], "s": sum(pair)}))

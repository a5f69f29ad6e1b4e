"""Search for counterexamples of an adder in the open cases of a proof.

Sampling finds common errors; this search finds rare ones. Finite differences give the direction of
the stream in which the margin falls fastest. In every open case, dynamic programming over columns
(carry_dp.py) gives the pair of numbers that moves the stream furthest in this direction. The model
is then run on these candidate pairs.
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

MAX_SAMPLE_ROWS = 20_000  # maximum number of random rows, besides the edge cases
WORST_CASES_PER_TOKEN = 8  # open cases searched for each row and query token
MAX_OPEN_BOUNDS = 60  # pairs of row and query token that are searched
MAX_SAMPLE_SCORES = 2 * 10**7  # attention scores per sample; limits rows of long inputs


class BatchDependent(GlassformerError):
    """Error for rows that are wrong in a batch but right when run alone."""


def prover_defect(detail: str) -> GlassformerError:
    """Return the error for a running model that contradicts its proof."""
    return GlassformerError(
        f"prove: a defect of the prover: {detail}. Nothing is proved. "
        "Please report it and attach the model"
    )


def describe_counterexample(counterexample: dict[str, Any]) -> str:
    c = counterexample
    return f"{c['input']} gives {c['got']}, expected {c['expected']}"


def sample_counterexample(model: Model, task: Task, seed: int = 0) -> dict[str, Any] | None:
    """Return a counterexample among the edge cases and a random sample, or None."""
    tokens, answer = task.batch(task.rows(0, 1))
    max_rows = max(4, MAX_SAMPLE_SCORES // int(tokens.size * answer.sum()))
    sample = task.sample(min(MAX_SAMPLE_ROWS, max_rows), np.random.default_rng(seed))
    edges = task.edges()
    if len(edges) > max_rows:
        edges = edges[np.linspace(0, len(edges) - 1, max_rows).astype(int)]
    return first_counterexample(model, task, np.concatenate([edges, sample]))


def refute(
    model: Model, task: Task, bounder: Bounder, open_: Iterable[Bounds], seed: int = 0
) -> dict[str, Any] | None:
    """Return a verified counterexample from the open cases, or None."""
    rng = np.random.default_rng(seed)
    dependent = None
    for bounds in itertools.islice(open_, MAX_OPEN_BOUNDS):
        rows = np.array(candidate_pairs(model, bounder, bounds, rng), task.row_type)
        try:
            if counterexample := first_counterexample(model, task, rows):
                return counterexample
        except BatchDependent as e:
            dependent = e
    if dependent:
        raise dependent
    return None


def first_counterexample(model: Model, task: Task, rows: Reals) -> dict[str, Any] | None:
    """Return the first row that the model gets wrong when run alone, or None.

    Raises:
        BatchDependent: Rows are wrong in a batch, but every row that was rerun alone is right.
    """
    chunk, dependent = chunk_size(model, task), ""
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        tokens, answer = task.batch(part)
        margin = row_margins(model, tokens, answer)
        for i in np.nonzero(~(margin > 0))[0][:8]:
            if counterexample := verify_counterexample(model, task, part[i]):
                return counterexample
            text = task.vocabulary.decode(tokens[i, : int(answer[i].argmax())])
            dependent = dependent or f"{text} is wrong in a batch of {len(part):,} rows"
    if dependent:
        raise BatchDependent(f"{dependent}, and right when it is run alone")
    return None


def verify_counterexample(model: Model, task: Task, row: Reals) -> dict[str, Any] | None:
    """Return a row as a counterexample if the model, run on it alone, is wrong or has a tie."""
    tokens, answer = task.batch(row[None])
    margin = float(row_margins(model, tokens, answer)[0])
    prompt, expected = tokens[0, : int(answer[0].argmax())], tokens[0][answer[0]]
    try:
        text = decode(model, prompt, len(expected), stop=task.stop)
        output = task.vocabulary.decode(text[len(prompt) :])
    except GlassformerError as e:
        output = str(e)
    right = task.vocabulary.decode(expected)
    if output == right and margin > 0:
        return None
    return {
        "row": [int(x) for x in row], "input": task.vocabulary.decode(prompt), "expected": right,
        "got": output if output != right else f"{output} by a tie", "margin": margin,
    }  # fmt: skip


def candidate_pairs(
    model: Model, bounder: Bounder, bounds: Bounds, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Return candidate pairs of numbers from the open cases of a row with one query token."""
    layout, cases, row = bounder.layout, bounds.cases, bounds.row
    if bounds.group.radius:
        return [(0, 0)]  # cases of a window do not determine the numbers
    margin = np.nan_to_num(bounds.margin.astype(float), nan=-np.inf)
    worst = np.argsort(margin)[:WORST_CASES_PER_TOKEN]
    worst = worst[~(margin[worst] > 0)]
    right = bounder.right_tokens(bounds.group, cases)
    S = row + 1
    value = np.einsum("vshk,hkd->hsvd", bounder.tables.v.mid[:, :S], bounder.W_O)  # H S V D
    possible = bounder.possible[:S]
    candidates = []
    with np.errstate(all="ignore"):
        for i in worst:
            noise = np.where(possible, rng.gumbel(size=(2, *possible.shape)), 0).astype(Real)
            pairs = [maximizing_pair(layout, row, terms, cases, i) for terms in noise]
            for pair in list(pairs):
                for rival in dict.fromkeys([int(bounds.rival[i]), *adjacent_digits(right[i])]):
                    if rival == right[i] or rival >= model.config.d_vocab:
                        continue
                    for _ in range(2):  # two descent steps, each with the gradient at the last pair
                        terms = rival_margin_terms(
                            model, bounder, bounds, value, pair, int(right[i]), rival
                        )
                        if not np.isfinite(terms).all():
                            break
                        terms = np.where(possible, terms, 0)
                        pair = maximizing_pair(layout, row, terms, cases, i)
                        pairs.append(pair)
            candidates += pairs
    return list(dict.fromkeys(candidates)) or [(0, 0)]


def adjacent_digits(right: int) -> list[int]:
    return [d for d in (right - 1, right + 1) if 0 <= d < 10] if right < 10 else []


def rival_margin_terms(
    model: Model,
    bounder: Bounder,
    bounds: Bounds,
    value: Reals,
    pair: tuple[int, int],
    right: int,
    rival: int,
) -> Reals:
    """Return the first-order effect of each token on the rival's lead near a pair, [S,V]."""
    row = bounds.row
    weight = bounder.weights(row, bounds.token).mid
    at = np.arange(row + 1), tokens_of_pair(bounder.layout, pair)[: row + 1]
    w = weight[:, at[0], at[1]]  # H S
    total = w.sum(1)  # H
    mean = np.einsum("hs,hsd->hd", w, value[:, at[0], at[1]]) / total[:, None]  # H D
    b = bounder.tables.array("attn.b_O")
    x = bounder.tables.stream.mid[bounds.token, row] + mean.sum(0) + (0 if b is None else b)  # D
    step = np.maximum(np.abs(mean).max(0), np.abs(value).mean((0, 1, 2)) * 1e-6) * 1e-4 + 1e-300
    probes = x + np.concatenate([np.diag(step), -np.diag(step)])  # 2D D
    lead = logits_after_attention(model, probes)[:, [right, rival]] @ np.array([-1.0, 1.0])
    slope = (lead[: len(x)] - lead[len(x) :]) / (2 * step)  # D
    effect = np.einsum("hsvd,d->hsv", value - mean[:, None, None], slope)
    terms: Reals = (weight * effect / total[:, None, None]).sum(0)  # S V
    return terms


def logits_after_attention(model: Model, x: Reals) -> Any:
    """Compute logits [B,V] from the stream after attention [B,D], in float64."""
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
    """Return the token sequence of a pair of numbers, including the answer."""
    return np.array(layout.format.tokens({"a": pair[0], "b": pair[1], "s": sum(pair)}))

"""Verification: counts, counterexamples, margins and scores."""

import numpy as np
import pytest

from glassformer import (
    Config,
    Model,
    Vocabulary,
    decode,
    load,
    load_task,
)
from glassformer.core.model import zeros
from glassformer.tasks.base import Task
from glassformer.verification import Progress, verify, verify_events
from glassformer.verification.evaluation import correct_logits, correct_tokens, row_margins, score
from helpers import raises, random_model


class Next(Task):
    """The answer to n is n+1, n+2 (mod 5)."""

    ref = "next"

    def __init__(self, ways=1):
        self.vocabulary, self.radix = Vocabulary.numbers(5), (5,) * ways

    def batch(self, rows):
        tokens = (rows[:, -1:] + np.arange(3)) % 5
        return tokens, np.tile([False, True, True], (len(rows), 1))

    def edges(self):
        return np.full((1, len(self.radix)), 4)


def successor(wrong_at: int | None = None, size: float = 1.0, **choices):
    """Return a model without layers: one-hot tokens, and an unembedding that outputs n+1."""
    config = Config(5, 3, 5, n_layers=0, norm="none", positions="none", **choices)
    w = zeros(config)
    w["embed.W_E"][:] = np.eye(5)
    w["unembed.W_U"][:] = np.roll(np.eye(5), 1, axis=1) * size
    if wrong_at is not None:
        w["unembed.W_U"][wrong_at] = 0
    return Model(config, w, Vocabulary.numbers(5))


def test_right():
    v = verify(successor(size=3.0), Next())
    assert (v.checked, v.wrong, v.domain, v.exhaustive, v.worst_margin, v.holds) == (
        5,
        0,
        5,
        True,
        3.0,
        True,
    )


@pytest.mark.parametrize("mask", ["causal", "none"])
def test_wrong_is_counted_and_shown(mask):
    v = verify(successor(wrong_at=2, mask=mask), Next())
    assert (v.checked, v.wrong, v.worst_margin, v.holds) == (5, 2, 0.0, False), (
        "a tie is wrong, lucky or not"
    )
    one = v.counterexamples[0]
    assert (
        one["input"] == "1"
        and one["expected"] == "2 3"
        and one["got"] == "2 0"
        and one["row"] == [1]
    )


def test_not_finite_is_wrong():
    broken = successor().map(lambda w: np.where(w == 1, np.inf, w))
    v = verify(broken, Next())
    assert (
        v.wrong == 5 and v.worst_margin == -np.inf and "not finite" in v.counterexamples[0]["got"]
    )
    nan = successor().map(lambda w: np.where(w == 1, np.nan, w))
    assert verify(nan, Next()).wrong == 5


def test_sampled_with_edges():
    v = verify(successor(wrong_at=4), Next(ways=12))
    assert not v.exhaustive and v.domain == 5**12 and v.checked == 100_001
    assert v.counterexamples[0]["row"] == [4] * 12, "the edges come first"
    assert verify(successor(), Next(), sample=7).checked == 8
    assert verify(successor(), Next(), rows=np.array([[1], [2]])).checked == 2


def test_rows_that_are_not_defined_are_left_out():
    class Half(Next):
        def defined(self, rows):
            return rows[:, 0] < 3

    v = verify(successor(wrong_at=3), Half())
    assert (v.checked, v.domain) == (3, 5)


def test_progress_and_chunks():
    events = list(verify_events(successor(), Next(), chunk=2))
    assert [e.done for e in events[:-1]] == [2, 4, 5] and isinstance(events[0], Progress)
    assert events[-1] == verify(successor(), Next())


def test_teacher_forcing_is_decoding():
    """For causal models: margin > 0 if and only if greedy decoding gives the answer."""
    model = random_model(seed=5)
    rng = np.random.default_rng(0)
    prompts = rng.integers(0, 7, (60, 3))
    decoded = decode(model, prompts, 4)
    mixed = decoded.copy()
    mixed[::2, 5] = (mixed[::2, 5] + 1) % 7
    answer = np.tile([False] * 3 + [True] * 4, (60, 1))
    assert ((row_margins(model, mixed, answer) > 0) == (mixed == decoded).all(1)).all()
    assert np.allclose(row_margins(model.torch(), mixed, answer), row_margins(model, mixed, answer))


def test_the_task_must_speak_the_models_language():
    with raises("bad_argument", "next"):
        verify(random_model(), Next())


def test_the_base_task_counts_in_mixed_radix():
    t = Task()
    t.radix = (2, 3, 2)
    rows = t.rows(0, t.size)
    assert t.size == 12 and rows.tolist()[:4] == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]
    assert len(np.unique(rows, axis=0)) == 12 and np.array_equal(rows[5:9], t.rows(5, 9))
    drawn = t.sample(5_000, np.random.default_rng(0))
    assert (
        drawn.max(0).tolist() == [1, 2, 1]
        and np.abs((drawn == 0).mean(0) - [0.5, 1 / 3, 0.5]).max() < 0.03
    )


def test_the_score_of_each_token_of_an_answer():
    """Answers of different lengths are aligned at their first tokens."""
    model = load("addition:digits=2,padding=none")
    result = score(model, load_task(model))
    assert result.positions == [1, 1, 1, 1] and result.wrong == 0  # up to 198 and the end
    task = load_task("sort:vocab=4,length=3")
    other = load("sort:vocab=4,length=3")
    assert (
        len(score(other, task).positions)
        == correct_tokens(other, task, task.sample_or_all(100)).shape[1]
    )
    assert correct_tokens(other, task, task.sample_or_all(100)[:0]).shape == (0, 0)


def test_right_of_logits_that_were_computed():
    """Ties and logits that are not finite are wrong."""
    logits = np.array([[0.0, 2, 1], [0, 2, 2], [np.nan, 2, 1], [np.inf, 2, 1], [0, 1, 2]])
    kept = logits.copy()
    assert correct_logits(logits, np.ones(5, int)).tolist() == [True, False, False, False, False]
    assert np.array_equal(logits, kept, equal_nan=True)
    model, task = successor(), Next()
    tokens, _ = task.batch(rows := task.rows(0, 5))
    result = correct_logits(model(tokens[:, :-1], last=2), tokens[:, 1:])
    assert np.array_equal(result, correct_tokens(model, task, rows)) and result.all()

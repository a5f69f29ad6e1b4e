"""Margins, scores and robust evaluation against values computed by hand or row by row."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer import load, load_task
from glassformer.core.decoding import decode
from glassformer.verification import evaluation, robust_eval, verify
from glassformer.verification.chunks import ChunkedEvaluation
from glassformer.verification.counts import count_rows
from glassformer.verification.evaluation import Margins
from helpers import raises, random_model

TASK = load_task("addition:digits=1")


def damaged():
    """Return a model that reads 7 as 8: a third of the rows are wrong."""
    model = load("addition:digits=1")
    weights = {n: np.array(w) for n, w in model.weights.items()}
    weights["embed.W_E"][7] = weights["embed.W_E"][8]
    return replace(model, weights=weights, parametrization="", theta={})


# ── margins ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("one", "other", "tie", "steady"), [
    ((4.01, 5.0), (4.01, 5.0), 0.0, (True, True)),
    ((4.0, 4.01), (5.0, 5.0), 0.0, (False, True)),  # more than 4 times what they differ by
    ((5.0, 5.0), (4.0, 4.01), 0.0, (False, True)),
    ((0.5, 0.51), (0.5, 0.51), 0.5, (False, True)),  # more than a tie, both ways
    ((np.inf, -1.0), (np.inf, -1.0), 0.0, (True, False)),
])  # fmt: skip
def test_what_is_steady(one, other, tie, steady):
    x, y = (Margins(np.array([gap]), np.full((1, 2), tie)) for gap in (one, other))
    assert x.clear_in_both(y).tolist() == [list(steady)]
    unsure = Margins(x.margin, np.full((1, 2), 100.0))
    assert not (x.clear_in_both(unsure) & (x.margin < np.inf)).any()
    assert not (unsure.clear_in_both(x) & (x.margin < np.inf)).any()


def test_a_right_token_leads_over_the_best_other():
    logits = np.array([[3.0, 1, 2], [2, 2, 0], [1, 2, 0], [np.nan, -9, -9], [9, np.inf, 0]])
    wanted = np.array([0, 0, 1, 0, 1])
    kept = logits.copy()
    assert evaluation.correct_logits(logits, wanted).tolist() == [True, False, True, False, False]
    assert np.array_equal(logits, kept, equal_nan=True)


def test_margins_are_those_of_each_row_alone():
    """Margins of a batch equal those computed from each row's logits."""
    model, rows = damaged(), TASK.rows(0, TASK.size)
    tokens, answer = TASK.batch(rows)
    n = evaluation.answer_span(answer)
    assert n == 2 and evaluation.answer_span(np.array([[0, 0, 0, 1], [0, 1, 0, 0]], bool)) == 3
    result, ties = evaluation.margins_and_ties(model, tokens, answer)
    assert (evaluation.token_margins(model, tokens, answer) == result).all()
    for i, (row, asked) in enumerate(zip(tokens, answer, strict=True)):
        logits = model.logits(row[None, :-1])[0]
        for t in np.flatnonzero(asked):
            mine, k = logits[t - 1], t - len(row) + n
            lead = mine[row[t]] - max(np.delete(mine, row[t]))
            assert result[i, k] == pytest.approx(lead, rel=1e-9)
            assert 0 < ties[i, k] < 1e-9 * np.abs(mine).max()
    assert evaluation.row_margins(model, tokens, answer) == pytest.approx(result.min(1))


def test_a_text_that_is_too_long_is_refused():
    short = replace(load("addition:digits=1"), config=replace(load("addition:digits=1").config))
    tokens, answer = TASK.batch(TASK.rows(0, 2))
    n = short.config.n_ctx
    assert evaluation.row_margins(short, tokens[:, : n + 1], answer[:, : n + 1]).shape == (2,)
    more = np.concatenate([tokens, tokens], 1)[:, : n + 2]
    with raises("bad_argument", n, n + 1):
        evaluation.row_margins(short, more, np.ones(more.shape, bool))


def test_rows_in_pieces_are_those_at_once():
    task = load_task("reverse:length=3")
    model = random_model(3, d_vocab=len(task.vocabulary), n_ctx=12)
    model = replace(model, vocabulary=task.vocabulary)
    rows = task.rows(0, task.size)[:50]
    whole = evaluation.margins_by_answer_token(model, task, rows)
    pieces = evaluation.margins_by_answer_token(model, task, rows, chunk=7)
    assert whole.shape == pieces.shape
    assert np.allclose(whole, pieces, rtol=1e-9)
    longest = max(int(a.sum()) for a in task.batch(rows)[1])
    assert whole.shape == (50, longest)
    assert evaluation.margins_by_answer_token(model, task, rows[:0]).shape == (0, 0)
    assert (evaluation.correct_tokens(model, task, rows) == (whole > 0)).all()


def test_what_a_decoded_row_leads_by():
    """When decoding, tokens after the first wrong one have its margin."""
    model = damaged()
    tokens, answer = TASK.batch(TASK.rows(0, TASK.size))
    forced, by_decoding = (
        f(model, tokens, answer)
        for f in (evaluation.teacher_forced_margins, evaluation.decoded_margins)
    )
    first = forced[:, 0]
    assert by_decoding[:, 0] == pytest.approx(first, rel=1e-9) and (first <= 0).any()
    right = first > 0
    assert by_decoding[right, 1] == pytest.approx(forced[right, 1], rel=1e-9)
    assert by_decoding[~right, 1] == pytest.approx(first[~right], rel=1e-9)
    output = evaluation.greedy_outputs(model, tokens, answer)
    for row, whole in zip(tokens[:20], output[:20], strict=True):
        assert decode(model, row[:-2], 2).tolist() == whole.tolist()


# ── scores ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("pieces", [False, True])
def test_a_score_counts_every_row(monkeypatch, pieces):
    model = damaged()
    if pieces:
        monkeypatch.setattr(evaluation, "chunk_size", lambda *_: 7)
    result = evaluation.score(model, TASK)
    rows = TASK.rows(0, TASK.size)
    tokens, answer = TASK.batch(rows)
    right = evaluation.teacher_forced_margins(model, tokens, answer) > 0
    bad = ~right.all(1)
    assert (result.checked, result.wrong) == (100, bad.sum()) and 5 < result.wrong < 95
    assert result.accuracy == pytest.approx(1 - bad.mean())
    assert result.positions == pytest.approx(right.mean(0).tolist())
    names = TASK.classes(rows)
    assert result.classes == {str(n): ((names == n).sum(), bad[names == n].sum())
                             for n in np.unique(names)}  # fmt: skip
    some = evaluation.score(model, TASK, rows[40:60])
    assert (some.checked, some.wrong) == (20, bad[40:60].sum())
    assert np.isnan(evaluation.score(model, TASK, rows[:0]).accuracy)


def test_so_many_rows_fit():
    """The largest activation of a row, for several shapes."""
    task = load_task("reverse:length=3")
    tokens, answer = task.batch(task.rows(0, 1))
    T, asked = tokens.shape[1], int(answer.sum(1).max())
    for config, most in (
        ({"n_layers": 3, "n_heads": 5, "d_head": 1, "d_mlp": 1, "d_model": 1}, 5 * T * T),
        ({"n_layers": 3, "n_heads": 1, "d_head": 1, "d_mlp": 999, "d_model": 1}, T * 999),
        ({"n_layers": 1, "n_heads": 1, "d_head": 1, "d_mlp": 999, "d_model": 1}, asked * 999),
        ({"n_layers": 1, "n_heads": 1, "d_head": 99, "d_mlp": 1, "d_model": 1}, T * 99),
        ({"n_layers": 1, "n_heads": 1, "d_head": 1, "d_mlp": 1, "d_model": 99}, T * 99),
        ({"n_layers": 1, "n_heads": 1, "d_head": 1, "d_mlp": 1, "d_model": 1, "d_vocab": 9999},
         asked * 9999),
    ):  # fmt: skip
        model = SimpleNamespace(config=SimpleNamespace(**({"d_vocab": 2} | config)))
        assert evaluation.peak_activation_size(model, task) == most
        assert evaluation.chunk_size(model, task) == min(max(2**20 // most, 1), 2**14)


def test_the_whole_domain_in_pieces():
    parts = list(evaluation.domain_chunks(TASK, 30))
    assert [len(p) for p in parts] == [30, 30, 30, 10]
    assert (np.concatenate(parts) == TASK.rows(0, 100)).all()


# ── right for sure ─────────────────────────────────────────────────────────────────────────────
def test_rows_are_counted_once(monkeypatch):
    monkeypatch.setattr(robust_eval, "MAX_REMEMBERED_ROWS", 3)
    counted = robust_eval.DistinctCounter()
    counted.add(np.array([[1, 2], [3, 4]]))
    counted.add(np.array([[3, 4], [5, 6], [7, 8]]))
    assert counted.count == 4 and counted.first == [(1, 2), (3, 4), (5, 6)]
    many = robust_eval.DistinctCounter()
    monkeypatch.setattr(robust_eval, "MAX_REMEMBERED_ROWS", 100)
    many.add(np.arange(20)[:, None])
    assert many.count == 20 and many.first == [(i,) for i in range(8)]


def test_the_nearest_rows_are_kept(monkeypatch):
    monkeypatch.setattr(robust_eval, "ONE_BY_ONE_ROWS", 3)
    near = robust_eval.ClosestRows(TASK)
    near.add(TASK.rows(0, 5), np.array([5.0, 1.0, 9.0, 2.0, 1.0]))
    near.add(TASK.rows(5, 7), np.array([0.5, 7.0]))
    assert near.margin_in_ties.tolist() == [0.5, 1.0, 1.0]
    assert (near.rows == TASK.rows(0, 7)[[5, 1, 4]]).all()
    picked = near.select(np.random.default_rng(0))
    assert len(picked) <= 9 and {tuple(r) for r in near.rows.tolist()} <= {
        tuple(r) for r in picked.tolist()
    }


@pytest.mark.parametrize("positions", ["learned", "none", "sinusoidal", "rotary", "alibi"])
def test_another_order_is_the_same_model(positions):
    """Logits are equal up to rounding, and all arrays that can be permuted are."""
    model = random_model(5, positions=positions, d_model=6, n_heads=2)
    rng = np.random.default_rng(0)
    other = robust_eval.reorder_sums(model, rng)
    tokens = rng.integers(7, size=(4, 9))
    assert np.abs(model.logits(tokens) - other.logits(tokens)).max() < 1e-9
    moved = {n for n, w in model.weights.items() if not np.array_equal(w, other.weights[n])}
    stays = {"unembed.b_U"}
    if positions == "rotary":  # queries and keys: what is in a head stays
        stays |= {f"blocks.{i}.attn.{x}_norm.{w}" for i in "01" for x in "qk" for w in "wb"}
    assert set(model.weights) - moved <= stays


def test_room_is_a_lead_in_ties_and_doubt_is_of_a_right_row():
    model = load("addition:digits=1")
    trial, (tokens, answer) = robust_eval.RobustEvaluator(model), TASK.batch(TASK.rows(0, 12))
    result = trial.evaluate(tokens, answer)
    one = evaluation.margins_and_ties(model, tokens, answer)
    assert (
        result.margin_in_ties == pytest.approx((one.margin / one.tie).min(1))
        and result.certain.all()
    )
    assert result.doubt == "" and not result.right_but_uncertain.any()
    moved = Margins(one.margin.copy(), one.tie)
    moved.margin[3, 1], moved.margin[7, 0] = -0.5, one.margin[7, 0] / 2
    worse = trial._compare(tokens, answer, moved, ("here", "there"))
    assert (
        np.flatnonzero(~worse.certain).tolist()
        == [3, 7]
        == np.flatnonzero(worse.right_but_uncertain).tolist()
    )
    assert worse.second_margin[3] == -0.5 and (worse.margin == result.margin).all()
    assert "wrong there" in worse.doubt and "here" in worse.doubt


def test_every_row_is_run_and_wrong_ones_are_counted():
    model, reported = damaged(), []
    ran = robust_eval.evaluate_domain(model, TASK, lambda *given: reported.append(given))
    tokens, answer = TASK.batch(TASK.rows(0, TASK.size))
    gap = evaluation.teacher_forced_margins(model, tokens, answer)
    bad = np.flatnonzero(~(gap.min(1) > 0))
    assert (ran.checked, ran.wrong) == (100, len(bad)) and ran.wrong <= ran.uncertain <= 100
    assert ran.margin == pytest.approx(gap.min(), rel=1e-6)
    assert ran.failures == [tuple(r) for r in TASK.rows(0, 100)[bad[:8]].tolist()]
    assert sum(len(rows) for _, rows, _ in reported) == 100 and reported[-1][0] == 100
    good = robust_eval.evaluate_domain(load("addition:digits=1"), TASK)
    assert (good.checked, good.wrong, good.uncertain, good.failures, good.doubt) == (
        100,
        0,
        0,
        [],
        "",
    )


def test_shuffled_is_never_as_it_was():
    for n, seed in itertools.product((2, 3, 5), range(20)):
        order = robust_eval._random_order(n, np.random.default_rng(seed))
        assert sorted(order) == list(range(n)) and order.tolist() != list(range(n))


# ── answers of different lengths, ties, ends of ranges ─────────────────────────────────────────
def several():
    """Return a task whose answers have 1 to 3 tokens, and a model that is mostly wrong."""
    task = load_task("sort:vocab=4,length=3")
    size = len(task.vocabulary)
    T = task.batch(task.rows(0, task.size))[0].shape[1]
    model = random_model(6, d_vocab=size, n_ctx=T, tied=True)
    return task, replace(model, vocabulary=task.vocabulary)


def test_answers_of_different_lengths_are_each_their_own(monkeypatch):
    task, model = several()
    rows = next(evaluation.domain_chunks(task, task.size))
    tokens, answer = task.batch(rows)
    lengths = answer.sum(1)
    assert len(set(lengths.tolist())) > 1
    each = [evaluation.teacher_forced_margins(model, t[None], a[None])[0] for t, a in
            zip(tokens, answer, strict=True)]  # fmt: skip
    each = [gap[gap < np.inf] for gap in each]
    for chunk in (0, 1, 3):
        whole = evaluation.margins_by_answer_token(model, task, rows, chunk=chunk)
        assert whole.shape == (len(rows), lengths.max())
        for gap, one, n in zip(whole, each, lengths, strict=True):
            assert gap[:n] == pytest.approx(one, rel=1e-9) and (gap[n:] == np.inf).all()
    monkeypatch.setattr(evaluation, "chunk_size", lambda *_: 3)
    for some in (rows, rows[::-1]):  # the longest first, or last
        result = evaluation.score(model, task, some)
        right = [[gap[k] > 0 for gap in each if len(gap) > k] for k in range(lengths.max())]
        assert result.positions == pytest.approx([np.mean(r) for r in right])
        assert result.wrong == sum((gap <= 0).any() for gap in each) > 0


def test_a_tie_is_wrong():
    """All logits are equal."""
    model = load("addition:digits=1")
    flat = replace(
        model, config=replace(model.config, tied=False), parametrization="", theta={},
        weights={**model.weights, "unembed.W_U": np.zeros(model.W_U.shape)},
    )  # fmt: skip
    rows = TASK.rows(0, 5)
    assert (evaluation.margins_by_answer_token(flat, TASK, rows) == 0).all()
    assert not evaluation.correct_tokens(flat, TASK, rows).any()
    assert evaluation.score(flat, TASK, rows).wrong == 5


def test_a_domain_of_just_so_many_is_counted_through(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_EXHAUSTIVE_ROWS", 100)
    assert evaluation.score(load("addition:digits=1"), TASK).checked == 100
    one = evaluation.score(load("addition:digits=1"), TASK, TASK.rows(0, 1))
    assert (one.checked, one.wrong, one.positions) == (1, 0, [1.0, 1.0])


def test_rows_of_some_chunks():
    """Parts of 5 and 10 rows, 4 at a time: chunks of 4, 1, 4, 4 and 2."""
    work = ChunkedEvaluation(
        load("addition:digits=1"), TASK, {"edges": 5, "sample": 10}, chunk=4, keep=3
    )
    assert (work.n_rows, work.n_chunks) == (15, 5)
    for done, rows in (
        ([range(0, 2)], {"edges": 5}), ([range(0, 1)], {"edges": 4}), ([], {}),
        ([range(1, 3)], {"edges": 1, "sample": 4}), ([range(4, 5)], {"sample": 2}),
        ([range(0, 1), range(2, 5)], {"edges": 4, "sample": 10}),
    ):  # fmt: skip
        assert work.rows_by_part(done) == rows
    assert [work.locate_chunk(i) for i in range(5)] == [
        ("edges", 0, 4), ("edges", 4, 5), ("sample", 0, 4), ("sample", 4, 8), ("sample", 8, 10),
    ]  # fmt: skip
    with pytest.raises(IndexError):
        work.locate_chunk(5)


def test_the_lowest_rows_of_each_answer_token():
    """Closest rows of each answer token, last token first, without rows that lack the token."""
    gap = np.array([[3.0, 9.0, 1.0], [np.inf, 2.0, 5.0], [4.0, 8.0, np.nan], [1.0, 7.0, 1.0]])
    result = count_rows(np.arange(4)[:, None], gap, np.full(4, ""), np.arange(4), 4, 9, 2)
    assert [[f[:2] for f in rows] for rows in result.lowest] == [
        [(-np.inf, 2), (1.0, 0)], [(2.0, 1), (7.0, 3)], [(1.0, 3), (3.0, 0)],
    ]  # fmt: skip
    assert (result.checked, result.wrong, result.worst[:2]) == (4, 1, (-np.inf, 2))


def test_what_a_verdict_says_of_its_seed():
    model = load("addition:digits=1")
    assert verify(model, TASK, seed=7).seed is None  # every row was checked
    some = verify(model, TASK, sample=10, seed=7)
    assert (some.seed, some.sample, some.exhaustive) == (7, 10, False)


def test_of_very_many_rows_the_last_may_count_twice(monkeypatch):
    monkeypatch.setattr(robust_eval, "MAX_REMEMBERED_ROWS", 3)
    counted = robust_eval.DistinctCounter()
    counted.add(np.ones((5, 1), int))
    assert counted.count == 3 and counted.first == [(1,)]

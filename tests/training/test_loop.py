"""The loop: an ensemble is its members, the same seed gives the same bits, and runs end as they
should.

Why no attention biases in the twins: a key's bias shifts all scores of a query alike, so its
gradient is 0 but for rounding, and AdamW divides rounding by rounding.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from glassformer import load, load_task
from glassformer.core.checkpoint import digest
from glassformer.core.checkpoint import load as read
from glassformer.core.model import forward
from glassformer.training import fit, fit_many, train
from glassformer.training.loop import Trainer
from glassformer.training.train_hooks import TRAIN_HOOKS
from glassformer.verification import verify
from glassformer.verification.evaluation import (
    correct_tokens,
    margins_by_answer_token,
    token_margins,
)
from helpers import raises
from training.small import TASK, furthest, recipe

SCHEDULES = {
    "constant": {}, "cosine": {"warmup": 5, "final_lr_fraction": 0.1}, "linear": {"decay_from": 15,
    "decay_steps": 25},
    "plateau": {"warmup": 3, "decay_when_loss_below": 2.2, "decay_steps": 30},
}  # fmt: skip


@pytest.mark.parametrize("schedule,optimizer", [
    ("cosine", "adamw"), ("linear", "muon"), ("plateau", "muon"),
    pytest.param("plateau", "adamw", marks=pytest.mark.slow),
    pytest.param("constant", "adamw", marks=pytest.mark.slow), pytest.param("linear", "adamw",
    marks=pytest.mark.slow),
    pytest.param("constant", "muon", marks=pytest.mark.slow), pytest.param("cosine", "muon",
    marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.some(3)
def test_an_ensemble_is_its_members(schedule, optimizer):
    r = recipe(
        schedule=schedule,
        optimizer=optimizer,
        ema=0.9,
        focal=2.0,
        grokfast=1.0,
        steps=50,
        evaluate_every=25,
    )
    r = r.override({k: str(v) for k, v in SCHEDULES[schedule].items()})
    run = Trainer(TASK, r, [3, 5])
    together = {e.member: e.data["training"] for e in run.events() if e.kind == "done"}
    alone = fit(TASK, r, 5)
    assert furthest(together[5].model, alone.model) < 1e-12
    assert together[5].history[-1]["digits"] == alone.history[-1]["digits"]
    assert furthest(together[3].model, alone.model) > 0.1


@pytest.mark.slow
def test_members_may_end_at_different_times():
    r = recipe(
        schedule="plateau",
        decay_when_loss_below=1.8,
        decay_steps=30,
        ema=0.5,
        steps=100,
        stop_after_successes=1,
        target_accuracy=0.1,
    )
    together = fit_many(TASK, r, range(4))
    assert len({t.steps for t in together}) > 2 and {t.status for t in together} <= {
        "stable",
        "done",
    }
    for t in (together[1], together[3]):  # one of them after another has left
        alone = fit(TASK, r, t.seed)
        assert (alone.steps, alone.status) == (t.steps, t.status)
        assert furthest(alone.model, t.model) < 1e-12
        assert [e.to_json() for e in alone.events] == [e.to_json() for e in t.events]


def test_the_same_seed_gives_the_same_bits():
    r = recipe(dtype="float32", optimizer="muon", ema=0.9)
    assert (
        digest(fit(TASK, r, 1).model)
        == digest(fit(TASK, r, 1).model)
        != digest(fit(TASK, r, 2).model)
    )


def test_what_stands_after_the_last_answer_is_not_computed(monkeypatch):
    runner, lengths = Trainer(TASK, recipe(), [0, 1]), []
    tokens, answer = runner.data.tokens_for_step([0, 1], 0)
    more = ((0, 0), (0, 0), (0, 4))
    shown = lambda *a, **k: (lengths.append(a[2].shape[1]), forward(*a, **k))[1]  # noqa: E731
    monkeypatch.setattr("glassformer.training.loss.forward", shown)
    short, long = (
        runner.objective.gradients(runner.theta, t, a)
        for t, a in ((tokens, answer), (np.pad(tokens, more), np.pad(answer, more)))
    )
    assert len(set(lengths)) == 1
    seen = Trainer(
        TASK, recipe(mask="none", extra_positions=4), [0]
    )  # who sees all, sees what comes after
    seen.objective.gradients(seen.theta, np.pad(tokens, more)[:1], np.pad(answer, more)[:1])
    assert lengths[-1] == lengths[0] + 4
    assert torch.allclose(short[1], long[1])
    assert all(torch.allclose(g, long[0][n], atol=1e-14) for n, g in short[0].items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
def test_compiled_is_the_same():
    # more texts than tokens, where rows are shared if nothing is compiled
    r = recipe(steps=20, optimizer="muon", batch=2 * len(TASK.vocabulary))
    plain, compiled = (fit_many(TASK, r, [0, 1], compile=c) for c in (False, True))
    assert furthest(plain[1].model, compiled[1].model) < 1e-12


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
def test_what_is_compiled_may_change_its_shape_often(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # traced only
    runner = Trainer(TASK, recipe(batch=2 * len(TASK.vocabulary)), range(12), compile=True)
    for left in range(12, 0, -1):  # members end one by one; 8 shapes are what PyTorch allows
        runner._step()
        runner._keep_members(list(range(left - 1)))


@pytest.mark.slow
def test_shapes_that_differ_from_row_to_row():
    task = load_task("sort:vocab=7,length=4")
    r = recipe(test_rows=50, loss="all", steps=60, evaluate_every=60)
    together = fit_many(task, r, [0, 1])
    assert furthest(together[1].model, fit(task, r, 1).model) < 1e-12
    assert together[0].model.config.n_ctx == 8
    assert set(together[0].history[-1]["classes"]) <= {f"{n} numbers" for n in range(1, 5)}


# ── how runs end ───────────────────────────────────────────────────────────────────────────────
def test_divergence_stops_with_a_clear_word_and_the_last_good_model(tmp_path):
    r = recipe(lr=1e9, clip=0.0, warmup=25, evaluate_every=1)
    out = tmp_path / "x.safetensors"
    seen = []
    with raises("bad_argument", "x.safetensors", "diverged"):
        for event in train(TASK, r, [0], out=out):
            seen.append(event)
    training = seen[-1].data["training"]
    assert training.status == "diverged" and all(
        np.isfinite(w).all() for w in training.model.weights.values()
    )
    assert digest(read(out)) == digest(training.model)


def test_a_member_that_diverges_leaves_the_others_alone():
    r = recipe(steps=20, evaluate_every=5)
    run, done, good = Trainer(TASK, r, [0, 1, 2]), {}, None
    for event in run.events():
        if event.kind == "evaluation" and event.step == 10 and event.member == 2:
            good = run.model(1)
            run.theta["embed.W_E"][1, 0] = torch.nan
        if event.kind == "done":
            done[event.member] = event.data["training"]
    assert {s: t.status for s, t in done.items()} == {0: "done", 1: "diverged", 2: "done"}
    assert done[1].steps == 11 and furthest(done[1].model, good.map(lambda w: w.numpy())) == 0
    alone = fit(TASK, r, 2)
    assert furthest(done[2].model, alone.model) < 1e-12
    assert (
        [h["step"] for h in done[2].history]
        == [h["step"] for h in alone.history]
        == [5, 10, 15, 20]
    )


def test_the_hopeless_are_stopped_early():
    r = recipe(steps=60, abort_after_steps=25, abort_below_accuracy=1.0)
    result = fit_many(TASK, r, [0, 1])
    assert [(t.status, t.steps) for t in result] == [("aborted", 30)] * 2
    assert [
        t.status
        for t in fit_many(TASK, recipe(abort_after_steps=25, abort_below_accuracy=0.0), [0, 1])
    ] == ["done", "done"]
    assert fit(TASK, r, 0).status == "aborted"


def test_a_last_step_between_evaluations_is_evaluated():
    assert [h["step"] for h in fit(TASK, recipe(steps=25), 0).history] == [10, 20, 25]


def test_stop_at_the_step_at_which_it_is_stable(tmp_path):
    r = recipe(target_accuracy=0.0, stop_after_successes=1)
    t = fit(TASK, r, 0, out=tmp_path / "a.safetensors", stop=lambda: True)
    assert (t.status, t.steps) == ("interrupted", 1)
    t = fit(
        TASK,
        recipe(target_accuracy=0.0, stop_after_successes=1, evaluate_every=1),
        0,
        out=tmp_path / "b.safetensors",
        stop=lambda: True,
    )
    assert (t.status, t.steps) == ("stable", 1)


def test_several_seeds_have_a_file_each(tmp_path):
    short = recipe(steps=2, evaluate_every=1, stop_after_successes=0)
    result = fit_many(
        TASK, short, [3, 5], out=tmp_path / "x.safetensors", history=tmp_path / "h.jsonl"
    )
    files = ["x-seed3.safetensors", "x-seed5.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.jsonl", *files]
    assert [digest(read(tmp_path / name)) for name in files] == [digest(t.model) for t in result]
    assert (tmp_path / "h.jsonl").read_text().count('"kind": "done"') == 2


def test_what_is_refused(tmp_path):
    with raises("bad_argument", "seeds", [1, 1]):
        fit_many(TASK, recipe(), [1, 1])
    with raises("bad_argument", "seeds", 2):
        fit_many(TASK, recipe(), [0, 1], out=tmp_path / "x.safetensors", resume=True)
    with raises("bad_argument", "seeds", 2):
        Trainer(TASK, recipe(), [0, 1], out=tmp_path / "x.safetensors")
    for device in ("tpu", "cpu:x", "cuda:99", "meta"):
        with raises("bad_argument", device, "cpu"):
            fit(TASK, recipe(), 0, device=device)
    for name in ("init_from", "teacher"):
        with raises("bad_argument", name, TASK.ref):
            fit(TASK, recipe(), 0, **{name: load("min")})
    with raises("bad_argument", "init_from", 9):
        fit(
            load_task("addition:digits=3,order=ones"),
            recipe(),
            0,
            init_from=load("addition:digits=2,order=ones"),
        )


# ── where the weights begin, and what is true ──────────────────────────────────────────────────
def test_gradient_descent_stays_at_a_program():
    program = load("addition:digits=2,order=ones")
    task = load_task(program)
    before = verify(program, task)
    t = fit(task, recipe(lr=1e-6, weight_decay=0.0, steps=20, test_rows=500), 0, init_from=program)
    assert t.model.config == program.config and t.accuracy == before.holds == 1.0
    assert 0 < furthest(t.model, program) < 1e-4
    assert verify(t.model, task).wrong == 0


@pytest.mark.slow
def test_a_teachers_words_are_the_truth():
    teacher = fit(TASK, recipe(steps=5), 7).model  # it knows next to nothing
    tokens, _ = TASK.batch(TASK.rows(0, 100))
    t = fit(
        TASK, recipe(steps=120, batch=32, evaluate_every=120, optimizer="muon"), 0, teacher=teacher
    )
    assert correct_tokens(teacher.torch(), TASK, TASK.rows(0, 100)).all(1).mean() < 0.2
    output, wanted = (
        m(tokens[:, :-1]).argmax(-1)[:, 3] for m in (t.model, teacher)
    )  # the first answer token
    assert (output == wanted).mean() > 0.8 and (tokens[:, 4] == wanted).mean() < 0.3


# ── ablations as taps; accuracy ────────────────────────────────────────────────────────────────
@pytest.mark.slow
def test_no_attention_leaves_attention_untrained():
    r = recipe(train_hook="no-attention", weight_decay=0.0)
    begun, ended = Trainer(TASK, r, [0]).model(0), fit(TASK, r, 0).model
    moved = {n for n, w in ended.weights.items() if not np.array_equal(w, begun.weights[n].numpy())}
    assert "blocks.0.mlp.W_in" in moved and not any(".attn." in n for n in moved)
    together = fit_many(TASK, recipe(train_hook="no-residual"), [0, 1])
    assert furthest(together[0].model, fit(TASK, recipe(train_hook="no-residual"), 0).model) < 1e-12


def test_long_texts_are_looked_at_a_few_at_a_time(monkeypatch):
    for ref, most in (("repeat-last", 1_000), ("search", 200)):
        task, sizes = load_task(ref), []
        model = Trainer(task, recipe(test_rows=5, d_model=64), [0]).model(0)
        batch = task.batch
        monkeypatch.setattr(
            task, "batch", lambda rows, f=batch, n=sizes: (n.append(len(rows)), f(rows))[1]
        )
        margins_by_answer_token(model, task, task.sample(1_000, np.random.default_rng(0)))
        assert max(sizes) <= most and sum(sizes) >= 1_000
        assert most < 1_000 or 1_000 in sizes  # short ones all at once


def test_a_model_that_decodes_is_asked_for_no_answer_in_pieces():
    """It would read its own words in between, and what follows a gap would never be looked at."""
    task = load_task("reverse:length=3")
    model = Trainer(task, recipe(test_rows=5, mask="none"), [0]).model(0)
    tokens, answer = task.batch(task.sample(4, np.random.default_rng(0)))
    answer[:, -2] = False
    with raises("bad_argument", "mask=none"):
        token_margins(model, tokens, answer)
    causal = Trainer(task, recipe(test_rows=5), [0]).model(0)
    assert (
        token_margins(causal, tokens, answer)[:, -2] == np.inf
    ).all()  # all others are looked at


def test_right_by_forcing_and_by_decoding():
    task = load_task("sort:vocab=7,length=4")
    model = fit(
        task, recipe(test_rows=50, steps=150, evaluate_every=150, optimizer="muon", batch=32), 0
    ).model.torch()
    rows = task.sample(300, np.random.default_rng(0))
    forced, decoded = (
        correct_tokens(model, task, rows),
        correct_tokens(model, task, rows, teacher_forced=False),
    )
    assert forced.shape == (300, 4) and 0.05 < forced.all(1).mean() < 1
    assert np.array_equal(forced.all(1), decoded.all(1)) and not np.array_equal(forced, decoded)
    assert np.array_equal(forced, margins_by_answer_token(model, task, rows, chunk=7) > 0)
    tapped = correct_tokens(
        model, task, rows, hook=TRAIN_HOOKS["no-attention"](), teacher_forced=False
    )
    assert np.array_equal(
        tapped.all(1), correct_tokens(model, task, rows, hook=TRAIN_HOOKS["no-attention"]()).all(1)
    )


def test_wait_does_not_decay_before_the_hardest_level():
    """A loss that is low on easy rows says nothing about the hard ones."""
    patient = recipe(
        schedule="plateau",
        decay_when_loss_below=1e9,
        decay_steps=10,
        steps=80,
        data="fresh",
        test_rows=20,
    )
    for curriculum, begins in (("", 20), ("1@0 2@30", 50)):
        run = Trainer(
            load_task("addition:digits=2,order=ones"), replace(patient, curriculum=curriculum), [0]
        )
        for _ in range(60):
            run._step()
        assert run.decay_at.tolist() == [begins]


@pytest.mark.parametrize("rows", [1e4, 1000.5, -3, 0, "many", True])
def test_how_many_rows_a_task_finds_worth_checking_is_looked_at_before_the_work(rows, monkeypatch):
    task = load_task("addition:digits=4")
    monkeypatch.setattr(task, "default_sample_size", rows)
    with raises("bad_argument", "default_sample_size"):
        Trainer(task, recipe(), [0])


@pytest.mark.parametrize("decay", [0.5, 0.9])
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_what_is_kept_is_the_moving_average_of_theta(decay, seeds):
    """average = decay * average + (1 - decay) * theta after each step, from the first theta on."""
    run = Trainer(TASK, recipe(ema=decay, optimizer="muon"), seeds)
    want = {n: t.numpy().copy() for n, t in run.theta.items()}
    for _ in range(5):
        run._step()
        want = {n: decay * w + (1 - decay) * run.theta[n].numpy() for n, w in want.items()}
    for n, w in want.items():
        assert np.abs(run.evaluated_theta[n].numpy() - w).max() < 1e-14
        assert np.abs(run.theta[n].numpy() - w).max() > 1e-4

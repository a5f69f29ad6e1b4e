"""The logit lens and shares of a margin, against the logits themselves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer import explain, load, record
from glassformer.lens import logits as lens
from glassformer.resolve import load_task
from glassformer.verification.evaluation import score
from helpers import largest_difference, raises, random_model

TOKENS = np.random.default_rng(0).integers(0, 7, (5, 9))
MODELS = st.fixed_dictionaries({
    "seed": st.integers(0, 99), "extras": st.booleans(), "n_layers": st.integers(0, 3),
    "n_heads": st.integers(1, 3),
    "d_mlp": st.sampled_from([0, 5]), "norm": st.sampled_from(["layer", "rms", "none"]),
    "tied": st.booleans(),
    "positions": st.sampled_from(["learned", "none", "sinusoidal", "rotary", "alibi"]),
    "mask": st.sampled_from(
        ["causal", "none"]), "norm_first": st.booleans(), "qk_norm": st.booleans(),
})  # fmt: skip


# ── the logit lens ─────────────────────────────────────────────────────────────────────────────
@given(MODELS)
@settings(max_examples=60, deadline=None)
def test_last_logits_are_the_models_own(choices):
    model = random_model(**choices)
    result = lens.logit_lens(model, TOKENS)
    assert largest_difference(model(TOKENS), result.logits[-1]) < 1e-12
    blocks = [["attention"], ["attention", "mlp"]][choices["d_mlp"] > 0]
    parts = [f"{part} {i}" for i in range(choices["n_layers"]) for part in blocks]
    assert result.parts == ["embed", *parts] and result.logits.shape == (len(parts) + 1, 5, 9, 7)


@pytest.mark.parametrize("norm_first", [True, False])
def test_lens_matches_shorter_models(norm_first):
    model = random_model(n_layers=3, norm_first=norm_first)
    result = lens.logit_lens(model, TOKENS)
    for n in range(4):
        kept = {
            k: w
            for k, w in model.weights.items()
            if not k.startswith(tuple(f"blocks.{i}" for i in range(n, 3)))
        }
        short = replace(model, config=replace(model.config, n_layers=n), weights=kept)
        assert largest_difference(short(TOKENS), result.logits[2 * n]) < 1e-12


@pytest.mark.parametrize("choices", [{}, {"norm_first": False}, {"d_mlp": 0}, {"mask": "none"}])
@pytest.mark.parametrize("last", [None, 1, 4])
@pytest.mark.some(3)
def test_stop_after_matches_the_lens(choices, last):
    model = random_model(**choices)
    result = lens.logit_lens(model, TOKENS)
    for part, expected in zip(result.parts, result.logits, strict=True):
        tap = lens.stop_after(model, part)
        model(TOKENS[::-1], hook=tap)  # what it saw before does not matter
        got = model(TOKENS, hook=tap, last=last)
        assert largest_difference(expected if last is None else expected[:, -last:], got) < 1e-12


def test_accuracy_by_part():
    model, task = load("reverse:length=3,alphabet=4"), load_task("reverse:length=3,alphabet=4")
    by_part = dict(lens.lens_accuracy(model, task))
    assert list(by_part) == ["embed", "attention 0"]
    assert by_part["attention 0"].accuracy == 1 and by_part["embed"].accuracy < 0.5
    tokens, answer = task.batch(task.rows(0, task.size))
    right = lens.logit_lens(model, tokens[:, :-1]).top_tokens[0] == tokens[:, 1:]
    counted = [right[:, t].mean() for t in np.nonzero(answer[0, 1:])[0]]
    assert np.allclose(by_part["embed"].positions, counted)


def test_tokens_and_top_tokens():
    result = lens.logit_lens(load("min:vocab=10"), np.array([[6, 2, 7]]))
    assert result.str_tokens == [["6", "2", "7"]]
    assert result.to_json()["winners"] == [
        [["6", "2", "7"]],
        [["6", "2", "2"]],
    ]  # first itself, then the least so far
    assert np.allclose(result.probabilities.sum(-1), 1)


# ── shares of a margin ─────────────────────────────────────────────────────────────────────────
@given(MODELS.filter(lambda m: m["norm_first"]), st.integers(0, 6), st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_shares_sum_up_to_the_margin(choices, right, other):
    model = random_model(**choices)
    result = lens.direct_logit_attribution(model, TOKENS, right, other)
    logits = model(TOKENS)
    assert largest_difference(logits[..., right] - logits[..., other], result.margin) < 1e-12
    size = max(1.0, np.abs(result.shares).max())
    assert np.abs(result.shares.sum(0) - result.margin).max() / size < 1e-11


def test_default_tokens_of_attribution():
    model = random_model()
    result, ordered = lens.direct_logit_attribution(model, TOKENS), np.sort(model(TOKENS), -1)
    assert largest_difference(ordered[..., -1] - ordered[..., -2], result.margin) < 1e-12
    wrong = lens.direct_logit_attribution(model, TOKENS, right=result.other)
    assert np.array_equal(wrong.other, result.right) and (wrong.margin <= 0).all()


@pytest.mark.parametrize("choices", [{}, {"extras": False}, {"activation": "relu", "gated": False}])
def test_neurons_sum_up_to_their_mlp(choices):
    model = random_model(**choices)
    parts = lens.direct_logit_attribution(model, TOKENS, 1, 2)
    by_name = dict(zip(parts.parts, parts.shares, strict=True))
    for layer in (0, 1):
        neurons = lens.direct_logit_attribution(model, TOKENS, 1, 2, neuron_layer=layer)
        whole = by_name[f"mlp {layer}"] + by_name.get(f"mlp bias {layer}", 0)
        assert largest_difference(whole, neurons.shares.sum(0)) < 1e-11
        assert neurons.parts[:2] == [f"neuron {layer}.0", f"neuron {layer}.1"]


def test_ablating_a_neuron_removes_its_share():
    """Without norms, logits are linear in the last layer's neurons."""
    model = random_model(norm="none")
    result = lens.direct_logit_attribution(model, TOKENS, 1, 2, neuron_layer=1)
    share = dict(zip(result.parts, result.shares, strict=True))

    def silence(name, value):
        return value * (np.arange(5) != 3) if name == "blocks.1.mlp.hook_post" else value

    lost = model(TOKENS) - model(TOKENS, hook=silence)
    assert largest_difference(lost[..., 1] - lost[..., 2], share["neuron 1.3"]) < 1e-10


def test_attribution_of_a_program():
    model = load("min:vocab=10")
    result = lens.direct_logit_attribution(model, np.array([[6, 2, 7]]))
    last = dict(zip(result.parts, result.shares[:, 0, -1], strict=True))
    assert last["reads the smallest number"] == pytest.approx(result.margin[0, -1])


@pytest.mark.parametrize("ref, text", [("addition:digits=2", "45+78="), ("min:vocab=10", None)])
def test_explain_shows_the_same_shares(ref, text):
    model = load(ref)
    tokens = model.vocabulary.encode(text) if text else [6, 2, 7]
    result = lens.direct_logit_attribution(model, np.array([tokens]))
    shown = explain(model, tokens)
    assert [name for name, _ in shown.shares] == result.parts
    assert largest_difference(result.shares[:, 0, -1], [share for _, share in shown.shares]) < 1e-9
    assert shown.margin == pytest.approx(result.margin[0, -1])


def test_means_over_answers():
    model, task = load("addition:digits=1"), load_task("addition:digits=1")
    rows = task.rows(0, 100)
    result = lens.answer_attribution(model, task, rows)
    tokens, answer = task.batch(rows)
    each = lens.direct_logit_attribution(model, tokens[:, :-1], tokens[:, 1:])
    assert result.positions == np.nonzero(answer[0])[0].tolist() and result.asked.tolist() == [
        100,
        100,
    ]
    for i, t in enumerate(result.positions):
        assert largest_difference(each.shares[:, :, t - 1].mean(1), result.shares[:, i]) < 1e-12
        assert result.margin[i] == pytest.approx(each.margin[:, t - 1].mean())
    size = np.abs(result.shares).max()
    assert np.abs(result.shares.sum(0) - result.margin).max() < 1e-9 * max(1, size)
    assert dict(result.mean_shares()) == pytest.approx(
        dict(zip(result.parts, result.shares.mean(1), strict=True))
    )


def test_models_without_a_causal_mask_read_the_prefix():
    task = load_task("reverse:length=3,alphabet=4")
    model = replace(
        random_model(d_vocab=len(task.vocabulary), mask="none"), vocabulary=task.vocabulary
    )
    rows = task.rows(0, 20)
    tokens, answer = task.batch(rows)
    result = lens.answer_attribution(model, task, rows)
    for i, t in enumerate(np.nonzero(answer[0])[0]):
        alone = lens.direct_logit_attribution(model, tokens[:, :t], tokens[:, 1 : t + 1])
        assert result.margin[i] == pytest.approx(alone.margin[:, -1].mean())


def test_pytorch_models_give_equal_results():
    pytest.importorskip("torch")
    model = random_model()
    ours, theirs = (lens.direct_logit_attribution(m, TOKENS).shares for m in (model, model.torch()))
    assert largest_difference(ours, theirs) < 1e-12
    assert (
        largest_difference(
            lens.logit_lens(model, TOKENS).logits, lens.logit_lens(model.torch(), TOKENS).logits
        )
        == 0
    )


def test_invalid_arguments():
    with raises("bad_argument", "pre-norm"):
        lens.direct_logit_attribution(random_model(norm_first=False), TOKENS)
    with raises("bad_argument", "layer 0", "MLP"):
        lens.direct_logit_attribution(random_model(d_mlp=0), TOKENS, neuron_layer=0)
    with raises("bad_argument", "token 7", "6"):
        lens.direct_logit_attribution(random_model(), TOKENS, right=7)
    with raises("not_found", "'mlp 2'", "embed", "attention 0"):
        lens.stop_after(random_model(), "MLP 2")
    with raises("bad_argument", "vocabulary"):
        lens.answer_attribution(random_model(), load_task("reverse"), np.zeros((1, 5), dtype=int))


def test_head_outputs_sum_up_to_attention():
    model = random_model()
    cache = record(model, TOKENS)[1]
    whole = lens.head_outputs(model, cache, 1).sum(2) + model.weights["blocks.1.attn.b_O"]
    assert largest_difference(cache["blocks.1.hook_attn_out"], whole) < 1e-12


def test_the_last_part_scores_like_the_model():
    model, task = load("addition:digits=1"), load_task("addition:digits=1")
    assert lens.lens_accuracy(model, task)[-1][1] == score(model, task)

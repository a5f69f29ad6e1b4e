"""Ranks, circuits and truncation: independent computations and matrices of known rank."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import load, record
from glassformer.core import checkpoint
from glassformer.lens import rank
from glassformer.lens.logits import logit_difference_shares
from glassformer.parametrizations.low_rank import Lora, LowRank
from glassformer.resolve import load_task
from helpers import largest_difference, raises, random_model


def total(shapes):
    return sum(int(np.prod(s)) for s in shapes.values())


# ── ranks ──────────────────────────────────────────────────────────────────────────────────────
def test_equal_values_and_zeros_are_counted():
    assert rank.effective_rank([3.0, 3, 3, 0, 0]) == pytest.approx(3)
    assert rank.energy_rank([3.0, 3, 3, 0, 0]) == 3
    assert rank.effective_rank([0.0, 0]) == rank.energy_rank([0.0, 0]) == 0


def test_small_values_count_little():
    assert 1 < rank.effective_rank([1.0, 0.01]) < 1.1
    assert (
        rank.energy_rank([1.0, 0.05]) == 1 and rank.energy_rank([1.0, 0.11]) == 2
    )  # 0.25 % and 1.2 % of the energy
    assert rank.energy_rank([10.0, 1, 1], share=0.985) == 2  # 101 of 102 is 99.02 %


def test_the_measures_of_two_singular_values_by_hand():
    m = rank.MatrixRank("x", (2, 2), np.array([2.0, 1.0]))
    assert m.effective == pytest.approx(3 / 2 ** (2 / 3))  # of shares 2/3 and 1/3
    assert m.effective_energy == pytest.approx(0.8**-0.8 * 0.2**-0.2)
    assert (m.stable, m.holding_90, m.holding) == (1.25, 2, 2)
    assert rank.MatrixRank("x", (2, 2), np.array([3.0, 1.0])).holding_90 == 1  # 0.9 exactly
    zero = rank.MatrixRank("x", (2, 2), np.zeros(2))
    assert [getattr(zero, name) for name in rank.RANK_MEASURES.values()] == [0, 0, 0, 0]
    text = str(m)
    assert "1.9 by s, 1.6 by s²; stable rank 1.2; 90 % of the energy in 2" in text
    assert m.to_json()["stable"] == 1.25


def test_ranges_over_hidden_matrices():
    model = random_model()
    hidden = [m for m in rank.matrix_ranks(model) if m.name.startswith("blocks.")]
    ranges = rank.hidden_rank_ranges(model)
    assert ranges["stable rank"] == (min(m.stable for m in hidden), max(m.stable for m in hidden))
    for low, high in zip(*([ends[i] for ends in ranges.values()] for i in (0, 1)), strict=True):
        assert 1 <= low <= high
    order = [ranges[name][0] for name in ("stable rank", "entropy of s²", "entropy of s")]
    assert order == sorted(order)


def test_every_matrix_has_its_rank_and_no_bias_has():
    model = random_model()
    by_name = {r.name: r for r in rank.matrix_ranks(model)}
    assert set(by_name) == {n for n in model.weights if n.split(".")[-1].startswith("W_")}
    assert by_name["blocks.0.attn.W_Q"].shape == (4, 9) and by_name["blocks.0.attn.W_O"].shape == (
        9,
        4,
    )
    W_Q = np.concatenate(list(model.weights["blocks.0.attn.W_Q"]), axis=1)  # heads side by side
    assert np.allclose(by_name["blocks.0.attn.W_Q"].values, np.linalg.svd(W_Q, compute_uv=False))
    assert by_name["embed.W_E"].to_json()["holding"] == by_name["embed.W_E"].holding


def test_the_book_adder_is_of_low_rank():
    """Its seven digit heads read one number each, and all neurons read the same number."""
    by_name = {r.name: r for r in rank.matrix_ranks(load("addition:digits=1,variant=book"))}
    assert by_name["blocks.0.mlp.W_in"].effective == pytest.approx(1)


# ── circuits ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("m, r, n", [(6, 2, 5), (3, 4, 6), (1, 1, 1)])
def test_singular_values_without_the_product(m, r, n):
    rng = np.random.default_rng(0)
    f = rank.FactoredMatrix(rng.normal(size=(m, r)), rng.normal(size=(r, n)))
    whole = np.linalg.svd(f.product, compute_uv=False)
    k = min(m, r, n)
    assert f.shape == (m, n) and np.allclose(f.singular_values[:k], whole[:k])
    assert np.allclose(f.singular_values[k:], 0) and np.allclose(whole[k:], 0)
    assert f.rank("x").effective == pytest.approx(rank.effective_rank(whole))


def test_circuits_are_the_weights_multiplied():
    model = random_model(scale=0.3)
    result = rank.circuits(model)
    assert len(result) == 2 * 2 * 3
    W = {n: model.weights[f"blocks.1.attn.{n}"][2] for n in ("W_Q", "W_K", "W_V", "W_O")}
    assert np.allclose(result["QK 1.2"].product, 0.3 * W["W_Q"] @ W["W_K"].T)
    assert np.allclose(result["OV 1.2"].product, W["W_V"] @ W["W_O"])


CHOICES = [
    {},
    {"norm": "rms", "qk_norm": True},
    {"norm": "none", "scale": 0.7},
    {"norm_first": False},
]


@pytest.mark.parametrize("choices", CHOICES)
def test_full_qk_circuit_is_the_scores(choices):
    """Without positions, first-layer scores depend only on the two tokens."""
    model = random_model(positions="none", mask="none", **choices)
    cache = record(model, np.arange(7)[None])[1]
    for h in range(3):
        ours = rank.full_qk_circuit(model, 0, h).product
        assert largest_difference(cache["blocks.0.attn.hook_attn_scores"][0, h], ours) < 1e-12


@pytest.mark.parametrize("choices", CHOICES[:-1])
def test_full_ov_circuit_is_the_share_of_logits(choices):
    """A single token attends to itself, so its head writes one row of the circuit."""
    model = random_model(positions="none", n_layers=1, **choices)
    tokens = np.arange(7)[:, None]
    cache = record(model, tokens)[1]
    scale = cache["ln_final.hook_scale"][..., 0] if model.config.norm != "none" else np.ones((7, 1))
    full = rank.full_ov_circuit(model, 0, 1).product / scale  # V V
    for first, second in ((0, 1), (5, 2)):
        pair = (np.full_like(tokens, t) for t in (first, second))
        share = dict(logit_difference_shares(model, cache, *pair))["head 0.1"][:, 0]
        assert largest_difference(share, full[:, first] - full[:, second]) < 1e-12


def test_full_qk_circuit_of_positions():
    model = random_model()
    W_pos = model.weights["pos_embed.W_pos"]
    silent = replace(model, weights=dict(model.weights) | {"embed.W_E": np.zeros((7, 4))})
    cache = record(silent, np.zeros((1, 9), dtype=int))[1]
    scores, ours = (
        cache["blocks.0.attn.hook_attn_scores"][0, 2],
        rank.full_qk_circuit(model, 0, 2, W_pos).product,
    )
    seen = np.isfinite(scores)
    assert seen.sum() == 45 and np.allclose(scores[seen], ours[seen])


def test_invalid_arguments():
    with raises("not_found", "head 2.0", "layer below 2", "head below 3"):
        rank.qk_circuit(random_model(), 2, 0)
    with raises("bad_argument", "pre-norm"):
        rank.full_ov_circuit(random_model(norm_first=False), 0, 0)
    with raises("bad_argument", "rows", "[n,4]", "[7, 3]"):
        rank.full_qk_circuit(random_model(), 0, 0, np.zeros((7, 3)))
    with raises("bad_argument", "-1"):
        rank.truncate(random_model(), -1)


# ── taking rank away ───────────────────────────────────────────────────────────────────────────
def test_truncation_changes_hidden_matrices_only():
    model = random_model().astype("float32")
    cut = rank.truncate(model, 2)
    for (name, before), after in zip(model.weights.items(), cut.weights.values(), strict=True):
        hidden = name.startswith("blocks.") and ".W_" in name
        assert hidden or np.array_equal(before, after), name
        assert after.dtype == np.float32
    assert (
        max(np.linalg.matrix_rank(m) for n, m in rank.weight_matrices(cut).items() if "blocks" in n)
        == 2
    )
    assert cut.provenance["truncated"] == 2


def test_full_rank_is_the_model_itself_and_rank_0_has_no_blocks():
    model = random_model()
    tokens = np.arange(7)[None]
    assert largest_difference(model(tokens), rank.truncate(model, 4)(tokens)) < 1e-10
    assert not any(
        w.any() for n, w in rank.truncate(model, 0).weights.items() if "blocks" in n and ".W_" in n
    )


def test_truncation_is_the_start_of_low_rank():
    model = random_model(d_model=16, d_head=5, d_mlp=16)
    shapes = {n: w.shape for n, w in model.weights.items()}
    parametrization = LowRank(2)
    theirs = parametrization.expand(
        parametrization.init_theta(model.weights, np.random.default_rng(0)), shapes
    )
    for name, w in rank.truncate(model, 2).weights.items():
        assert largest_difference(theirs[name], w) < 1e-12, name


def test_accuracy_and_size_of_each_rank():
    model = load("reverse:length=3,alphabet=4")
    task = load_task(model)
    cuts = rank.truncation(model, task, [0, 1, 2, 3, 99])
    assert cuts[-1].accuracy == 1 and cuts[0].accuracy < 0.5
    assert cuts[-1].parameters == sum(w.size for w in model.weights.values())
    shapes = {n: w.shape for n, w in model.weights.items()}
    assert [t.parameters for t in cuts[1:]] == [
        total(LowRank(r).theta_shapes(shapes)) for r in (1, 2, 3, 99)
    ]
    assert cuts[0].parameters < cuts[1].parameters


def damaged(model, ranks, rng):
    """Subtract random matrices of given ranks from hidden matrices."""
    weights = dict(model.weights)
    for name, r in ranks.items():
        m = rank.weight_matrices(model)[name]
        noise = (
            rng.normal(size=(m.shape[0], r))
            @ rng.normal(size=(r, m.shape[1]))
            * 100
            * np.abs(m).max()
        )
        weights[name] = weights[name] - noise.reshape(weights[name].shape)
    return replace(model, weights=weights)


def test_smallest_lora_rank(tmp_path):
    after = load("reverse:length=3,alphabet=4")
    name = "blocks.0.attn.W_O"
    before = damaged(after, {name: 2}, np.random.default_rng(1))
    task = load_task(after)
    result = rank.lora_update_rank(before, after, task)
    assert result.accuracy == 1 and result.rank == 2
    assert result.tried[0].accuracy < 1  # or there would be nothing to carry
    by_name = {m.name: m for m in result.matrices}
    assert (by_name[name].values > 1e-6 * by_name[name].values[0]).sum() == 2
    assert all(m.effective == 0 for m in result.matrices if m.name != name)
    file = checkpoint.save(before, tmp_path / "before.safetensors")
    shapes = {n: w.shape for n, w in after.weights.items()}
    assert result.parameters == total(Lora(str(file), 2).theta_shapes(shapes))
    assert result.dense == sum(
        w.size for n, w in after.weights.items() if "blocks" in n and ".W_" in n
    )
    assert result.to_json()["rank"] == 2 and "rank 2" in str(result)


def test_rank_0_without_an_update_or_for_lower_accuracy():
    model = load("reverse:length=3,alphabet=4")
    task = load_task(model)
    assert rank.lora_update_rank(model, model, task).rank == 0
    before = damaged(model, {"blocks.0.attn.W_O": 2}, np.random.default_rng(1))
    assert rank.lora_update_rank(before, model, task, max_accuracy_drop=1.0).rank == 0


def test_updates_need_the_same_arrays():
    with raises("bad_argument", "blocks.0.mlp.W_in"):
        rank.lora_update_rank(
            random_model(d_mlp=6, extras=False), random_model(extras=False), load_task("reverse")
        )


def test_svd_rejects_values_that_are_not_finite():
    """NumPy's SVD of infinity does not terminate."""
    model = load("reverse:length=2")
    with np.errstate(all="ignore"):
        bad = {n: w + np.inf if n.endswith("W_O") else w for n, w in model.weights.items()}
    with raises("bad_argument", "singular values"):
        rank.truncate(replace(model, weights=bad), 1)

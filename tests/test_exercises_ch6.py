"""The booklet's exercises of chapter 6 that are constructions or measurements.
docs/exercises.md has them all.
"""

from itertools import product

import numpy as np
import pytest

from glassformer.core.hooks import record
from glassformer.core.model import Config, Model, zeros
from glassformer.core.param_count import count
from glassformer.craft import (
    Head,
    Layout,
    layer_norm,
    lift,
    polyline,
    ring,
    spike,
    spikes,
    weak_spike,
    weak_spikes,
)
from glassformer.programs.add_digit import with_constant_norm
from glassformer.programs.add_mod import figure_6_3, min_separation
from glassformer.programs.addition_book import figure_6_4, mlp_inputs
from glassformer.resolve import load, load_task
from glassformer.verification import verify

RNG = np.random.default_rng(6)


def right(model: Model, **options: object) -> bool:
    return verify(model, load_task(model), **options).wrong == 0


def test_6_1_sums_of_two_sets_span_at_most_n_plus_m_minus_1() -> None:
    v, u = RNG.standard_normal((7, 40)), RNG.standard_normal((5, 40))
    assert np.linalg.matrix_rank((v[:, None] + u).reshape(-1, 40)) == 7 + 5 - 1


def test_6_2_any_spike() -> None:
    f = spike(at=3.5, value=-2.0, width=0.25)
    assert f.W_in.shape == (1, 3)
    x = np.array([[-9.0], [3.25], [3.5], [3.75], [40.0]])
    np.testing.assert_allclose(f(x)[:, 0], [0, 0, -2, 0, 0], atol=1e-12)


@pytest.mark.parametrize(("make", "neurons"), [(spikes, 60), (polyline, 19)])
def test_6_3_and_6_4_any_function_on_20_numbers(make: object, neurons: int) -> None:
    x, y = RNG.permutation(np.cumsum(RNG.uniform(0.1, 1, 20))), RNG.standard_normal((20, 3))
    f = make(x, y)  # type: ignore[operator]
    assert f.W_in.shape == (1, neurons)
    np.testing.assert_allclose(f(x[:, None]), y, atol=1e-11)


def test_6_5_weak_spikes_have_two_neurons() -> None:
    f = weak_spike(at=2.0)
    assert f.W_in.shape == (1, 2)
    assert f([[2.0]]) == 1
    assert (f(np.array([[-5.0], [1.0], [3.0], [99.0]])) <= 0).all()
    x = np.array([0.0, 1, 4, 5, 9])
    assert weak_spikes(x)(x[:, None]).argmax(-1).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("base", [2, 3, 10, 13])
def test_6_6_parameters_in_base_b(base: int) -> None:
    model = load(f"add-digit:base={base},variant=book")
    assert count(model).total == 58 * base + 49
    assert right(model)


def test_6_7_attention_writes_1_minus_k_and_k() -> None:
    """Values x_i = (½ − i, i) add to (1 − k, k), k = i + j; a table takes it from there.

    The mean of two tokens times 2 is their sum. Tokens are (d/100, 1, …) and fixed under layer
    norm: ½ − d is linear in that. Against what is there, the head writes 10⁴ times as much, as in
    Figure 6.2.
    """
    config = Config(
        10,
        n_ctx=2,
        d_model=4,
        d_head=2,
        d_mlp=18,
        eps=0.0,
        activation="relu",
        positions="none",
        tied=True,
    )
    weights = zeros(config, "mlp.b_in", "mlp.b_out")
    rows = weights["embed.W_E"][:] = with_constant_norm(np.arange(10) / 100)
    Head(weights, 0, 0).copy(slice(0, 2), slice(0, 2), 2e4 * np.array([[-100, 100], [0.5, 0]]))
    k = np.arange(19)
    written = 1e4 * np.stack([1 - k, k, 0 * k, 0 * k], axis=1)
    polyline(layer_norm(written)[:, 1], rows[k % 10] * 1e9).in_stream(
        slice(1, 2), slice(0, 4), 4
    ).write(weights, 0)
    model = Model(config, weights, load_task("add-digit").vocabulary, "add-digit")
    _, result = record(model, np.array([[3, 9]]))
    np.testing.assert_allclose(
        result["blocks.0.hook_attn_out"][0, 1] / 1e4, [1 - 12, 12, 0, 0], atol=1e-9
    )
    assert right(model)


def test_6_8_three_dimensions_take_fewer_parameters() -> None:
    model = load("add-digit:variant=table")
    assert model.config.d_model == 3
    assert count(model).total == 183 < 629
    assert right(model)


def test_6_9_proper_cleanup() -> None:
    """Nothing is loud. A head that looks at itself takes the token away; what is left depends on
    the sum k only, and the table writes the digit's row minus that. (To erase it neuron by neuron
    it would have to be fixed under layer norm; but a table that knows k knows the residual as
    well.) Afterwards the stream *is* the digit's row.
    """
    config = Config(10, n_ctx=2, d_model=4, n_heads=2, d_head=4, d_mlp=18, eps=0.0,
        activation="relu",
                    positions="none", tied=True)  # fmt: skip
    weights = zeros(config, "mlp.b_in", "mlp.b_out")
    rows = weights["embed.W_E"][:] = with_constant_norm(np.arange(10) / 100)
    Head(weights, 0, 0).copy(slice(0, 2), slice(0, 2), np.diag([20, 1]))  # k/10, and 1
    cleanup = Head(weights, 0, 1)
    cleanup.attend_to_self(slice(0, 4), hardness=1e6)
    cleanup.erase(slice(0, 4))
    k = np.arange(19)
    left = np.stack([k / 10, 1 + 0 * k, 0 * k, 0 * k], axis=1)
    polyline(layer_norm(left)[:, 0], rows[k % 10] - left).in_stream(
        slice(0, 1), slice(0, 4), 4
    ).write(weights, 0)
    model = Model(config, weights, load_task("add-digit").vocabulary, "add-digit")
    assert right(model)
    assert max(np.abs(w).max() for name, w in weights.items() if "W_Q" not in name) < 1e3
    _, result = record(model, np.array([[7, 5]]))
    np.testing.assert_allclose(result["blocks.0.hook_resid_post"][0, 1], rows[2], atol=1e-9)


def test_6_10_cosines_of_differences_have_rank_2() -> None:
    i = np.arange(12)
    assert np.linalg.matrix_rank(np.cos(0.7 * np.abs(i[:, None] - i))) == 2


@pytest.mark.parametrize("digits", [1, 2])
def test_6_11_shared_positions_need_a_head_per_place(digits: int) -> None:
    model = figure_6_3(digits, shared=True)
    assert model.config.n_heads == digits + 1
    assert right(model)


def test_6_13_layer_norm_bends_the_line() -> None:
    """The residual only changes the y_j of section 6.1; its sums v_k = v + k·w still stand on a
    line, and no functional picks one from the middle of a line. But layer norm puts the line on an
    arc, and there every sum has one.
    """
    line = np.arange(19.0)[:, None] * [1, -1, 0] + np.array([4, 4, -8])
    arc = layer_norm(line)
    assert (arc @ arc.T).argmax(0).tolist() == list(range(19))
    assert set((line @ RNG.standard_normal((3, 1000))).argmax(0).tolist()) == {0, 18}


@pytest.mark.parametrize("digits", [1, 2])
def test_6_14_without_a_cleanup_head(digits: int) -> None:
    model = figure_6_3(digits, tidy=False)
    assert count(model).total == count(figure_6_3(digits)).total - 84
    assert right(model)


def test_6_15_the_tens() -> None:
    for variant in ("hinge", "book"):
        model = load(f"add-mod:digits=2,place=tens,variant={variant}")
        assert right(model)


def test_6_16_dividing_by_a_power_of_ten() -> None:
    """No parameter more, and three digits become right in float32 as well, but for a few where
    rounding decides.
    """
    book, divided = figure_6_3(3), figure_6_3(3, unit=1000)
    assert 1.3e-9 < min_separation(book) < 1.4e-9
    assert min_separation(divided) > 4e-4
    assert count(book).total == count(divided).total
    wrong = [verify(m.astype("float32"), load_task(m), sample=500).wrong for m in (book, divided)]
    assert wrong[0] > 500 and wrong[1] < 50
    layout = Layout(value=1, one=1, rest=2, position=3)

    def five_digits(
        unit: float,
    ) -> float:  # a model of 9 million parameters: only what its MLP would see
        sums = np.arange(2 * 10**5 - 1)[:, None]
        return float(
            np.diff(
                layer_norm(layout.row(value=sums / unit, one=1, position=ring(12)[-1]))[:, 0]
            ).min()
        )

    assert five_digits(1) < 1e-14  # they coincide
    assert 4e-6 < five_digits(1e5) < 6e-6


@pytest.mark.parametrize("digits", [1, 2])
def test_6_17_addition_that_reads_relative_positions(digits: int) -> None:
    model = relative_adder(digits)
    assert right(model)


def relative_adder(digits: int) -> Model:
    """Decimal addition with relative looks at the operands: they are taken from `=`, where
    distances do not change.

    Layer 0, at `=`: a head per digit looks so many positions back and adds digit·unit·10^k to the
    value (and takes it off `rest`, so that the mean stays 0). A written digit must not do the same
    with what stands so far behind it: from a digit, every head looks at `+`, which has the value 0.
    Layer 1: one head looks at `=`, the other at its own position; together they write the sum and
    which digit is due as one number beside a 1, loud enough to drown the rest. At `=` itself layer
    norm has shrunk the row by |row|/√7, elsewhere not: so there are two kinds of code, and the
    table has both.
    """
    layout = Layout(value=1, one=1, rest=2, position=3)
    task, n_ctx, unit, loud = (
        load_task(f"addition:digits={digits}"),
        3 * digits + 2,
        0.25 / 10**digits,
        1e8,
    )
    sums, answers = np.arange(2 * 10**digits - 1), np.arange(n_ctx - digits - 1, n_ctx)
    codes_n = len(sums) * (digits + 1)
    config = Config(12, n_ctx=n_ctx, d_model=7, n_layers=2, n_heads=2 * digits, d_head=4,
        d_mlp=codes_n - 1, eps=0.0,
                    activation="relu", tied=True)  # fmt: skip
    weights = {n: w for n, w in zeros(config).items() if not n.startswith("blocks.0.mlp")}
    digit_rows = with_constant_norm(np.arange(10) / 100)
    golden = digit_rows[
        0, 2
    ]  # the rest of 0 is (golden, −1 − golden); that of = the other way round
    equals = digit_rows[0, [0, 1, 3, 2]]
    weights["embed.W_E"][:, :4] = np.concatenate([digit_rows, -digit_rows[:1], [equals]])
    position = layout["position"]
    weights["pos_embed.W_pos"][:, position] = ring(n_ctx)
    for i, (back, k) in enumerate(product([1, digits + 2], range(digits))):
        head = Head(weights, 0, i)
        head.attend_back(back + k, position, n_ctx, hardness=1e6)
        head.query[1, 3], head.query[2, 3] = (
            1e9 * (1 + golden),
            1e9,
        )  # from =: 0, from a digit: large
        head.key[1, 3] = -1  # at +: 1, elsewhere −1
        head.copy(slice(0, 1), slice(0, 4), 100 * unit * 10**k * np.array([[1.0, 0, 0, -1]]))
    middle = 2 * np.pi * answers.mean() / n_ctx
    mix = (
        0.9 * np.array([-np.sin(middle), np.cos(middle)]) @ lift(2)
    )  # grows along the positions of the answer
    fetch, due = Head(weights, 1, 0), Head(weights, 1, 1)
    fetch.query[1, 0], fetch.key[2, 0] = 1e4, -1  # = has by far the least there
    fetch.copy(layout["value"], layout["value"], loud)
    due.attend_to_self(position, hardness=1e6)
    due.value[1, 0] = due.output[0, 1] = np.sqrt(loud)
    due.value[position, 1], due.output[1, 0] = mix, loud
    at_equals = np.concatenate([unit * sums[:, None], 0 * sums[:, None] + equals[1:3],
                                equals[3] - unit * sums[:, None]], axis=1)  # fmt: skip
    shrunk = np.sqrt((np.sum(at_equals**2, axis=1) + 3) / 7)
    codes = unit * sums[:, None] / shrunk[:, None] + ring(n_ctx)[answers] @ mix  # S n+1
    codes[:, 0] = unit * sums + ring(n_ctx)[answers[0]] @ mix
    wanted = digit_rows[sums[:, None] // 10 ** np.arange(digits, -1, -1) % 10].reshape(-1, 4)
    read = layer_norm(layout.row(value=codes.reshape(-1, 1), one=1))[:, 0]
    polyline(read, wanted * loud**2).in_stream(slice(0, 1), slice(0, 4), 7).write(weights, 1)
    return Model(config, weights, task.vocabulary, task.ref)


def least_step(x: np.ndarray) -> float:
    return float(np.diff(np.sort(x)).min())


def tangent(digits: int) -> np.ndarray:
    """The direction in which the ring grows, in the middle of the answer's positions."""
    n = 3 * digits + 2
    angle = 2 * np.pi * (n - 1 - digits / 2) / n
    return np.array([-np.sin(angle), np.cos(angle)]) @ lift(2)


def test_6_18_better_constants_for_the_sum_and_the_position() -> None:
    assert 3.4e-7 < least_step(mlp_inputs(3)) < 3.6e-7
    assert (
        least_step(mlp_inputs(3, unit=1.1 / 2000, mix=0.76 * tangent(3))) > 1.9e-4
    )  # five hundred times as far
    assert right(figure_6_4(2, unit=1.7 / 200, mix=0.76 * tangent(2)), sample=500)


def test_6_19_which_coordinate_of_the_position() -> None:
    first, second, third = np.eye(3)
    assert (
        abs(least_step(mlp_inputs(2, mix=third))) < 1e-12
    )  # two places of the answer get the same code
    assert least_step(mlp_inputs(2, mix=first)) > 9e-4
    assert least_step(mlp_inputs(3, mix=third)) > 3 * least_step(
        mlp_inputs(3, mix=first)
    )  # but for three digits it is better
    assert least_step(mlp_inputs(3, mix=second)) > least_step(mlp_inputs(3, mix=first))

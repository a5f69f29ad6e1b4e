import numpy as np
import pytest

from glassformer.core.decoding import decode
from glassformer.core.model import Model
from glassformer.core.param_count import count
from glassformer.programs.addition_ones import addition_ones_first
from glassformer.resolve import load_task
from glassformer.verification import verify

TYPES = ["float64", "float32"]


def holds(model: Model, least_margin: float = 4.0, **how: object) -> int:
    verdict = verify(model, load_task(model), **how)
    assert verdict.wrong == 0, verdict.counterexamples
    assert verdict.worst_margin > least_margin
    return verdict.checked


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("digits", [1, 2])
def test_all_pairs(digits: int, dtype: str) -> None:
    assert holds(addition_ones_first(digits, dtype)) == 100**digits


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("digits", [3, 10, 12])
def test_sampled_pairs_and_carry_cascades(digits: int, dtype: str) -> None:
    model = addition_ones_first(digits, dtype)
    task = load_task(model)
    edges, drawn = task.edges(), task.sample(1000, np.random.default_rng(0))
    assert holds(model, rows=np.concatenate([edges[:: 1 + len(edges) // 4000], drawn])) > 2000


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_all_pairs_of_three_digits(dtype: str) -> None:
    assert holds(addition_ones_first(3, dtype)) == 10**6


@pytest.mark.slow
def test_a_million_pairs_of_ten_digits() -> None:
    assert holds(addition_ones_first(10, "float64"), sample=1_000_000) > 1_000_000


@pytest.mark.parametrize("dtype", TYPES)
def test_the_same_with_pytorch(dtype: str) -> None:
    assert holds(addition_ones_first(2, dtype).torch()) == 10_000


def test_decodes_with_the_end_token() -> None:
    model = addition_ones_first(3, "float64")
    prompt = model.vocabulary.encode("123+456=")
    text = model.vocabulary.decode(decode(model, prompt, 5, stop=13))
    assert text == "123+456=9750<EOS>"


def test_is_small_and_grows_by_a_position_row_per_token() -> None:
    assert [count(addition_ones_first(n, "float64")).total for n in (1, 2, 3, 10)] == [
        232,
        247,
        262,
        367,
    ]


def test_heads_read_whole_columns() -> None:
    """When 9 is written and 7 is due: *ahead* sees the tens 2 and 5, *here* the ones 3 and 6
    and the 9.
    """
    patterns = {}

    def tap(name: str, value: np.ndarray) -> np.ndarray:
        patterns[name] = value
        return value

    model = addition_ones_first(3, "float64")
    model(np.array([model.vocabulary.encode("123+456=9")]), hook=tap)
    ahead, here = patterns["blocks.0.attn.hook_pattern"][0, :, -1]
    np.testing.assert_allclose(ahead, [0, 0.5, 0, 0, 0, 0.5, 0, 0, 0], atol=1e-3)
    np.testing.assert_allclose(here, np.array([0, 0, 1, 0, 0, 0, 1, 0, 1]) / 3, atol=1e-3)


def test_without_the_wrap_by_ten_columns_of_ten_and_more_are_wrong() -> None:
    model = addition_ones_first(1, "float64")
    damaged = {name: np.array(value) for name, value in model.weights.items()}
    damaged["blocks.0.mlp.W_out"][1] = 0
    broken = Model(model.config, damaged, model.vocabulary, model.task)
    # Of 100 pairs of digits, those with a carry
    assert verify(broken, load_task(broken)).wrong == 45

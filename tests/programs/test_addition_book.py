"""The booklet's adder (Figure 6.4)."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.count import count
from glassformer.errors import GlassformerError
from glassformer.model import forward
from glassformer.programs.addition_book import book
from glassformer.refs import load_task
from glassformer.tap import Record, on
from glassformer.verify import verify


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_pair(digits: int, dtype: str) -> None:
    model = book(digits).astype(dtype)
    verdict = verify(model, load_task(model), chunk=64)
    assert (verdict.wrong, verdict.checked, verdict.exhaustive) == (0, 100**digits, True)


def test_three_digits_in_float64_only() -> None:
    model = book(3)
    task = load_task(model)
    rows = task.edges()[::10]
    assert verify(model, task, rows=rows).wrong == 0
    assert verify(model.astype("float32"), task, rows=rows[:20]).wrong > 10  # how many exactly, rounding decides


@pytest.mark.slow
def test_every_pair_of_three_digits() -> None:
    """All 1,000,000 pairs, each stream before the MLP once: there are some 40,000 different ones, to the last bit.

    (`glassformer verify addition:digits=3,variant=book` runs the MLP of 23,988 neurons four million times instead.)
    """
    model = book(3)
    task = load_task(model)
    attention = {name: w for name, w in model.weights.items() if ".mlp." not in name}
    config = replace(model.config, d_mlp=0)
    found: set[bytes] = set()
    for start in range(0, task.size, 20_000):
        tokens, answer = task.batch(task.rows(start, start + 20_000))
        kept = Record()
        forward(config, attention, tokens[:, :-1], kept, last=4)
        streams = kept["blocks.0.hook_resid_post"].reshape(-1, 7)
        rows = np.column_stack([streams.view(np.int64), tokens[answer]])
        found.update(map(bytes, np.unique(rows, axis=0)))
    different = np.frombuffer(b"".join(found), np.int64).reshape(-1, 8)
    assert 7_996 <= len(different) < 200_000  # a stream at least for every digit of every sum
    for part in np.array_split(different, len(different) // 256):
        stream, wanted = part[:, None, :7].copy().view(np.float64), part[:, 7]
        tap = on(model, {"blocks.0.hook_resid_mid": lambda x, s=stream: s})
        logits = model(np.zeros((len(part), 1), np.int64), tap=tap)
        assert (logits[:, 0].argmax(-1) == wanted).all()


def test_counts() -> None:
    counts = [count(book(n)) for n in (1, 2, 3)]
    assert [c.total for c in counts] == [2_088, 27_432, 360_576]
    mlp = [sum(n for name, n in c.nonzero_arrays.items() if ".mlp." in name) for c in counts]
    assert mlp == [648, 10_326, 139_128]


def test_names() -> None:
    labels = book(1).labels
    assert labels.heads == {"0.0": "1s of a", "0.1": "1s of b", "0.2": "which digit is due; clears the rest"}
    assert labels.neurons["0.75"] == "sum 12, 1s: middle"


def test_four_digits_are_refused() -> None:
    with pytest.raises(GlassformerError, match="at most 3, got 4"):
        book(4)

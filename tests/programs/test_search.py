"""search: over every text of small alphabets, and over long texts full of near misses."""

import itertools

import numpy as np
import pytest

from glassformer import load, load_task, run
from glassformer.core.param_count import count
from glassformer.programs.search import layer_offsets
from glassformer.tasks.search import Search
from glassformer.verification import verify
from helpers import raises

SMALL = [
    (1, 2, 8),
    (2, 2, 11),
    (3, 2, 11),
    (4, 2, 11),
    (5, 2, 12),
    (1, 3, 7),
    (2, 3, 8),
    (3, 3, 8),
    (2, 4, 6),
]


def exhaustive(prefix, vocab, length, variant, dtype="float64"):
    bos = variant == "bos"
    model = load(
        f"search:prefix={prefix},vocab={vocab},block={length + bos},variant={variant},dtype={dtype}"
    )
    return verify(
        model,
        load_task(
            f"search:prefix={prefix},vocab={vocab},block={length + bos},bos={str(bos).lower()}"
        ),
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("prefix,vocab,length", SMALL)
@pytest.mark.some(4)
def test_every_text(prefix, vocab, length, dtype):
    verdict = exhaustive(prefix, vocab, length, "squares", dtype)
    assert verdict.exhaustive and verdict.checked > 50 and verdict.wrong == 0
    assert verdict.worst_margin > 0.1


@pytest.mark.parametrize(
    "variant,dtype", [("bos", "float64"), ("bos", "float32"), ("hash", "float64")]
)
@pytest.mark.parametrize("prefix,vocab,length", [(2, 2, 10), (3, 2, 10), (2, 3, 7), (3, 3, 7)])
@pytest.mark.some(4)
def test_every_text_in_the_other_variants(prefix, vocab, length, variant, dtype):
    verdict = exhaustive(prefix, vocab, length, variant, dtype)
    assert verdict.exhaustive and verdict.checked > 100 and verdict.wrong == 0


def test_the_booklets_is_wrong_at_the_start():
    verdict = exhaustive(2, 3, 8, "book")
    assert 0.016 < verdict.wrong / verdict.checked < 0.05
    first = verdict.counterexamples[0]
    assert (first["input"], first["expected"], first["got"]) == ("0 0 1 0 0", "1", "0")
    text = "2 0 0 1 0 0"  # the same with something before it
    assert run("search:prefix=2,vocab=3,variant=book", text).output == "1"


@pytest.mark.parametrize(
    "prefix,vocab,book,nonzero,ours",
    [(10, 1000, 123_486, 30_742, 21_851), (3, 10, 4_800, 538, 1_579)],
)
def test_counts(prefix, vocab, book, nonzero, ours):
    counted = count(load(f"search:prefix={prefix},vocab={vocab},block=100,variant=book"))
    assert (counted.total, counted.booklet, counted.nonzero) == (book, book, nonzero)
    assert count(load(f"search:prefix={prefix},vocab={vocab},block=100")).total == ours
    assert ours <= book / (4 if prefix == 10 else 2)


@pytest.mark.parametrize(
    "options",
    ["prefix=10,vocab=1000", "prefix=10,vocab=1000,variant=hash", "prefix=3,dtype=float32",
    "prefix=32,vocab=1000",
     "prefix=3,vocab=10000,block=60", "prefix=7,vocab=50,block=400",
     "prefix=8,vocab=5,dtype=float32"],
)  # fmt: skip
@pytest.mark.some(4)
def test_long_texts(options):
    model = load(f"search:{options}")
    task = load_task(model)
    verdict = verify(model, task, sample=60)
    assert verdict.checked > 25 and verdict.wrong == 0


def test_hops_cover_the_prefix():
    for prefix in range(1, 33):
        steps, weights = layer_offsets(prefix)
        assert len(weights) == prefix and min(weights) >= 1
        assert sum(steps) == prefix and len(steps) == 1 + int(np.ceil(np.log2(prefix)))


def test_what_each_position_holds():
    """After gathering: the tokens 0 … prefix back and the weighted sum of their squares,
    wherever there are so many.
    """
    model = load("search:prefix=5,vocab=7,block=20")
    text = np.random.default_rng(0).integers(0, 7, 20)
    seen = {}
    model(text, hook=lambda name, x: seen.setdefault(name, x))
    stream = seen[f"blocks.{model.config.n_layers - 1}.hook_resid_pre"][0]
    t, at = np.linspace(-1, 1, 7)[text], {name: a for name, (a, _) in model.labels.slots.items()}
    for j in range(1, 6):
        assert np.abs(stream[5:, at[f"back{j}"]] - t[5 - j : 20 - j]).max() < 2e-3
    squares = sum(w * t[5 - j : 20 - j] ** 2 for j, w in enumerate(layer_offsets(5)[1], 1))
    assert np.abs(stream[5:, at["squares"]] - squares).max() < 1e-2
    early = sum(w * stream[:5, at[f"back{j}"]] ** 2 for j, w in enumerate(layer_offsets(5)[1], 1))
    assert (stream[:5, at["squares"]] > early + (1 / 3) ** 2 * 0.9).all()  # the mark


# ── the task ───────────────────────────────────────────────────────────────────────────────────
def test_the_domain_is_every_text_once():
    task = Search(prefix=2, vocab=3, block=6, length=5)
    rows = task.rows(0, task.size)
    texts = [tuple(r[1 : 1 + r[0]]) for r in rows.tolist()]
    assert texts == [t for n in (3, 4, 5) for t in itertools.product(range(3), repeat=n)]
    assert (task.rows(20, 50) == rows[20:50]).all()
    for text, row, defined in zip(texts, rows, task.defined(rows), strict=True):
        results = [i for i in range(len(text) - 2) if text[i : i + 2] == text[-2:]]
        assert defined == (len(results) == 1)
        if defined:
            tokens, answer = task.batch(row[None])
            assert (
                tokens[answer].tolist() == [text[results[0] + 2]]
                and tuple(tokens[0, : len(text)]) == text
            )


def test_samples_are_mostly_defined_and_edges_are():
    for task in (
        Search(),
        Search(prefix=10, vocab=1000),
        Search(prefix=1, vocab=50, block=4),
        Search(bos=True),
    ):
        rows = task.sample(300, np.random.default_rng(0))
        assert task.defined(rows).mean() > 0.4 and (rows < np.array(task.radix)).all()
        assert task.defined(task.edges()).all()
    assert set(task.classes(rows)) == {"inside", "at the start", "overlaps the query"}


def test_run():
    assert run("search", "1 2 3 4 5 6 1 2 3").output == "4"
    assert run("search:variant=bos", "7 7 7 7").output == "7"
    with raises("bad_argument", "4", "3"):
        run("search", "1 2 3")


@pytest.mark.parametrize(
    "ref,mention",
    [
        ("search:prefix=5,block=5", "length"),
        ("search:prefix=1,variant=book", "prefix"),
        ("search:vocab=1000,prefix=10,dtype=float32", "float32"),
        ("search:variant=hash,dtype=float32", "float32"),
        ("search:vocab=1", "vocab"),
    ],
)
def test_bad_options(ref, mention):
    with raises("bad_argument", mention):
        load(ref)


def test_numbers_stay_the_vocabulary_of_saved_models():
    saved = load_task("search:vocab=5,block=9").vocabulary.to_json()
    assert saved == {"numbers": 5, "first": 0}


def test_words_of_a_text(tmp_path):
    (tmp_path / "t.txt").write_text("It was the best of times, it was the worst of times.")
    ref = f"search:text={tmp_path / 't.txt'},prefix=2,block=12"
    model, task = load(ref), load_task(ref)
    assert model.vocabulary.decode(range(4)) == "best it of the"
    assert run(model, "It was the best of times, it was").output == "the"
    assert verify(model, task, sample=500).wrong == 0
    passages = task.sample(200, np.random.default_rng(0))[:, 1:]
    text = task.vocabulary.encode(" ".join(task.words))
    near_misses = (passages[:, :10] == text[:10]).all(1)
    assert 60 < near_misses.sum() < 140  # the other half are near misses of a repeated query


@pytest.mark.parametrize(
    "content,problem",
    [(b"\xff", "UTF-8"), (b"one", "2 to 10,000"), (b"a " + b"b" * 41, "40 characters")],
)
def test_bad_texts(tmp_path, content, problem):
    (tmp_path / "t.txt").write_bytes(content)
    with raises("bad_argument", problem):
        load(f"search:text={tmp_path / 't.txt'}")


def test_an_unknown_text():
    with raises("bad_argument", "moby-dick"):
        load("search:text=romeo")

"""lookup: any table by default; the booklet's two constructions as variants; tables from files."""

import json

import numpy as np
import pytest

from glassformer import GlassformerError, load, load_task, run
from glassformer.core.param_count import count
from glassformer.programs.lookup_book import margin_and_gradients
from glassformer.tasks.lookup import Lookup
from glassformer.verification import verify
from helpers import raises


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "table",
    ["entries=10", "entries=100", "entries=1000", "entries=1000,vocab=1000", "table=xor",
    "table=sum-mod-10",
     "table=parity-6", "entries=1", "entries=2,length=1,vocab=2", "entries=500,length=1,vocab=500"],
)  # fmt: skip
@pytest.mark.some(4)
def test_any_table(table, dtype):
    model = load(f"lookup:{table},dtype={dtype}")
    verdict = verify(model, load_task(model))
    assert (verdict.checked, verdict.wrong, verdict.exhaustive) == (
        load_task(model).entries,
        0,
        True,
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.some(4)
def test_random_tables_behind_every_prefix(seed):
    rng = np.random.default_rng(seed)
    length, vocab = (int(rng.integers(low, high)) for low, high in ((1, 7), (2, 9)))
    entries = min(int(rng.integers(1, 200)), vocab**length)
    options = f"entries={entries},length={length},vocab={vocab},seed={seed}"
    model = load(f"lookup:{options},block={length + 3}")
    for prefix in range(4):
        verdict = verify(model, load_task(f"lookup:{options},prefix={prefix}"))
        assert (
            verdict.exhaustive and verdict.checked == entries * vocab**prefix and verdict.wrong == 0
        )


def test_other_keys_before_the_key():
    task = load_task("lookup:entries=200,prefix=45")
    rows = np.concatenate([task.edges(), task.sample(1_000, np.random.default_rng(0))])
    assert task.edges().shape == (200, 46)
    assert (task.batch(task.edges())[0][:, 40:45] == np.roll(task.table.keys, -1, axis=0)).all()
    assert verify(load("lookup:entries=200,block=50"), task, rows=rows).wrong == 0


@pytest.mark.slow
def test_ten_thousand_entries():
    model = load("lookup:entries=10000,vocab=100")
    assert verify(model, load_task(model)).wrong == 0


def test_one_neuron_an_entry_fires_for_its_key_alone():
    model = load("lookup:entries=50")
    seen = {}
    task = load_task(model)
    model(task.table.keys, hook=lambda name, x: seen.setdefault(name, x))
    fires = seen["blocks.0.mlp.hook_post"][:, -1]
    assert np.abs(fires - np.eye(50)).max() < 1e-6
    assert (
        model.labels.neurons["0.7"]
        == f"{task.vocabulary.decode(task.table.keys[7])} -> {task.table.values[7]}"
    )


@pytest.mark.parametrize("entries,total,nonzero", [(10, 1_408, 286), (100, 3_588, 736)])
def test_the_booklets_counts(entries, total, nonzero):
    counted = count(load(f"lookup:entries={entries},variant=book"))
    assert (counted.total, counted.booklet, counted.nonzero) == (total, total, nonzero)
    assert count(load(f"lookup:entries={entries},block=5")).total < total


@pytest.mark.slow
def test_the_booklets_counts_of_a_thousand():
    test_the_booklets_counts(1000, 22_308, 5_036)


@pytest.mark.parametrize(
    "options",
    [
        "entries=10",
        "entries=100",
        "entries=10,vocab=1000",
        "entries=100,vocab=1000",
        pytest.param("entries=1000,vocab=100", marks=pytest.mark.slow),
    ],
)
def test_the_booklets_tables_are_learned(options):
    model = load(f"lookup:{options},block=7,variant=book")
    prefix = 1 if model.config.d_vocab < 1000 else 0
    for dtype in ("float64", "float32"):
        assert (
            verify(model.astype(dtype), load_task(f"lookup:{options},prefix={prefix}")).wrong == 0
        )


def test_optimising_depends_on_the_seed_alone():
    first, again, other = (load(f"lookup:entries=20,seed={s},variant=book") for s in (3, 3, 4))
    for name, w in first.weights.items():
        assert (w == again.weights[name]).all()
    assert (first.weights["embed.W_E"] != other.weights["embed.W_E"]).any()


def test_the_gradients_by_differences():
    rng = np.random.default_rng(0)
    E, mix = rng.standard_normal((7, 4)), rng.standard_normal((3, 4, 4))
    keys, values = rng.integers(0, 7, (11, 3)), rng.integers(0, 7, 11)

    def loss(E, mix):
        h = np.pad(np.einsum("nld,ldo->no", E[keys], mix), ((0, 0), (0, 3)))
        y = (h - h.mean(1, keepdims=True)) / h.std(1, keepdims=True)
        z = y[:, :4] @ E.T
        return (np.log(np.exp(z).sum(1)) - z[np.arange(11), values]).mean()

    _, gradients = margin_and_gradients(E, mix, keys, values)
    for x, g in zip((E, mix), gradients, strict=True):
        for i in ((0, 1), (3, 2), (6, 0)):
            at = i if x is E else (*i[1:], 1, i[1])
            step = np.zeros_like(x)
            step[at] = 1e-5
            pairs = [(E + s, mix) if x is E else (E, mix + s) for s in (step, -step)]
            assert g[at] == pytest.approx((loss(*pairs[0]) - loss(*pairs[1])) / 2e-5, abs=1e-7)


def test_untied_hash():
    wrong = [verify(m,
        load_task(m)).wrong for m in (load(f"lookup:entries=300,vocab=300,seed={s},variant=hash")
                                                     for s in range(3))]  # fmt: skip
    assert sum(wrong) <= 3  # of 900
    assert not load("lookup:variant=hash,dims=5").config.tied


# ── tables from files ──────────────────────────────────────────────────────────────────────────
def test_csv_and_json_are_the_same_table(tmp_path):
    rows = [["the", "cat", "sat"], ["a", "cat", "ran"], ["10", "9", "2"], ["the", "2", "10"]]
    pairs = {" ".join(r[:-1]): r[-1] for r in rows}
    (tmp_path / "t.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    (tmp_path / "object.json").write_text(json.dumps(pairs))
    (tmp_path / "rows.json").write_text(
        json.dumps([[int(t) if t.isdecimal() else t for t in r] for r in rows])
    )
    for name in ("t.csv", "object.json", "rows.json"):
        model = load(f"lookup:table={tmp_path / name}")
        assert tuple(model.vocabulary.tokens) == ("2", "9", "10", "a", "cat", "ran", "sat", "the")
        assert verify(model, load_task(model)).wrong == 0
        assert run(model, "9 the cat").output == "sat"
        assert run(model, "the 10 9").output == "2"


def test_a_text_gives_its_n_grams_that_do_not_overlap(tmp_path):
    (tmp_path / "t.txt").write_text("The cat—the Cat’s cat! A cat, a dog. The cat the bird.")
    ref = f"lookup:table={tmp_path / 't.txt'},length=2"
    task = load_task(f"{ref},entries=3")
    rows = np.concatenate([task.table.keys, task.table.values[:, None]], axis=1)
    assert [task.vocabulary.decode(row) for row in rows] == [
        "the cat the", "cat's cat a", "cat a dog",
    ]  # fmt: skip
    model = load(f"{ref},entries=3")
    assert verify(model, task).wrong == 0
    assert run(model, "The CAT,").output == "the"
    with raises("bad_argument", "4 different keys", "got 3"):  # "the cat" comes twice
        load_task(f"{ref},entries=4")


@pytest.mark.parametrize(
    "name,text,message",
    [
        ("none.csv", None, "cannot be read: No such file"),
        ("t.tsv", "1,2", "or a .csv, .json or .txt file"),
        ("t.csv", "", "got 0"),
        ("t.csv", "1,2,3\n1,2\n", "entry 2 — expected a key of 2 tokens, as in entry 1, got 1"),
        (
            "t.csv",
            "1,2,3\n4,5,6\n1,2,4\n",
            "entry 3 — expected a new key, got that of entry 1: 1 2",
        ),
        ("t.csv", "1,,3\n", "entry 1 — expected tokens of 1 to 40 characters"),
        ("t.csv", "1,a b,3\n", "got 'a b'"),
        ("t.csv", "the cat,sat\n", "a key of several has a column each), got 'the cat'"),
        ("t.csv", "7\n", "got 1"),
        ("t.csv", "7,7\n", "at least two different tokens"),
        ("t.csv", "1," * 40 + "1\n", "keys of 1 to 32 tokens"),
        ("t.csv", "1,2\n" * 10_001, "at most 10,000 entries"),
        ("t.csv", "1" * 4_000_001, "at most 4,000,000"),
        ("t.csv", "1" * 200_000 + ",2", "expected a table as CSV: field larger"),
        ("t.csv", b"\xff\xfe\x00,1", "expected a table as CSV"),
        ("t.json", "{", "expected a table as JSON"),
        ("t.json", "[" * 100_000, "expected a table as JSON"),
        ("t.json", "3", "expected a table as JSON: not an object from keys to values"),
        ("t.json", "[1, 2]", "an object from keys to values"),
        ("t.json", '{"1 2": [3]}', "tokens must be texts or whole numbers"),
        ("t.json", '{"1 2": true}', "tokens must be texts or whole numbers"),
        ("t.json", '{"1 2": "3", "1 2": "4"}', "entry 2 — expected a new key"),
        ("t.json", '{"1 2": "3", "1": "4"}', "entry 2 — expected a key of 2 tokens"),
    ],
)
def test_bad_tables(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(GlassformerError) as error:
        load(f"lookup:table={tmp_path / name}")
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "ref,mention",
    [
        ("lookup:table=nor", "sum-mod-10"),
        ("lookup:entries=17,length=2,vocab=4", "17"),
        ("lookup:block=4", "block"),
        ("lookup:variant=book,dims=2", "dims"),
        ("lookup:variant=book,entries=5000,vocab=5000", "4,000,000"),
        ("lookup:vocab=6000,dtype=float32", "float32"),
    ],
)
def test_bad_options(ref, mention):
    with raises("bad_argument", mention):
        load(ref)


def test_a_short_input():
    with raises("bad_argument", "5", "2"):
        run("lookup", "1 2")


def test_all_keys_of_a_full_table_are_different():
    task = Lookup(entries=81, length=4, vocab=3)
    assert len({tuple(k) for k in task.table.keys}) == 81
    assert set(np.unique(task.table.values)) <= {0, 1, 2}

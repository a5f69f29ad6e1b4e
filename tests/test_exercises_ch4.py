"""The booklet's exercises of chapter 4. See docs/exercises.md."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import load, load_task, run
from glassformer.core.param_count import count
from glassformer.craft import layer_norm
from glassformer.programs.lookup_book import optimize
from glassformer.programs.search_book import book_search
from glassformer.tasks.lookup import Lookup
from glassformer.tasks.search import Search
from glassformer.tasks.words import read_words
from glassformer.verification import verify


@pytest.mark.slow
def test_4_1_search_with_the_word_vectors_that_lookup_learned():
    table = Lookup("moby-dick", 1_000, 5)
    learned, _ = optimize(table, 11, seed=0)
    task = Search(prefix=2, block=101, bos=True, text="moby-dick")
    rng = np.random.default_rng(0)  # for the words that the table does not contain
    points = layer_norm(rng.standard_normal((len(task.vocabulary), 11)))
    points[task.vocabulary.encode(" ".join(table.vocabulary.tokens))] = learned
    model = book_search(task, 101, points)
    assert verify(model, task, sample=400).wrong == 0
    words = read_words("moby-dick")[:100]
    text = run(model, " ".join(words), steps=20).output.split()
    assert len(text) == 20 and set(text) <= set(task.words)


@pytest.mark.parametrize("prefix,vocab,length", [(2, 2, 10), (3, 2, 10), (2, 3, 7), (4, 2, 11)])
def test_4_2_the_same_weights_work_post_norm(prefix, vocab, length):
    model = load(f"search:prefix={prefix},vocab={vocab},block={length + 1},variant=bos")
    post = replace(model, config=replace(model.config, norm_first=False))
    verdict = verify(post, load_task(model))
    assert verdict.exhaustive and verdict.checked > 100 and verdict.wrong == 0


def looked_up(table, rng):
    """Return the answers [entries] of `search` to each key, with the whole table in the text.

    A separator before every row and in the query keeps a key from matching across two rows.
    """
    task = Lookup(table=table)
    keys, values, V = task.table.keys, task.table.values, len(task.vocabulary)
    n, length = keys.shape
    order = rng.permutation(n)
    rows = np.concatenate([np.full((n, 1), V), keys, values[:, None]], axis=1)[order].ravel()
    texts = np.concatenate([np.tile(rows, (n, 1)), np.full((n, 1), V), keys], axis=1)
    model = load(f"search:prefix={length + 1},vocab={V + 1},block={texts.shape[1]}")
    return model(texts, last=1)[:, -1].argmax(-1), values


@pytest.mark.slow
@pytest.mark.parametrize("table", ["xor", "sum-mod-10", "parity-6"])
def test_4_3_search_is_a_lookup_in_any_table_that_is_prepended(table):
    output, values = looked_up(table, np.random.default_rng(0))
    assert (output == values).all()


@pytest.mark.parametrize("prefix,vocab", [(10, 1000), (3, 10), (5, 50)])
def test_4_4_one_number_a_token(prefix, vocab):
    options = f"prefix={prefix},vocab={vocab}"
    model, book = load(f"search:{options}"), load(f"search:{options},variant=book")
    assert model.config.d_model == prefix + 6 < book.config.d_model == 3 * prefix + 3
    assert model.config.n_heads == 1 and model.config.d_head == prefix + 1
    assert 3 * count(model).total < count(book).total
    assert verify(model, load_task(model), sample=40).wrong == 0


def test_4_5_hashed_keys():
    model = load("search:prefix=10,vocab=1000,variant=hash")
    assert model.config.d_head == 6  # instead of 30
    assert 4 * count(model).total < count(load("search:prefix=10,vocab=1000,variant=book")).total
    assert verify(model, load_task(model), sample=40).wrong == 0


# ── 4.6: where it is not defined ───────────────────────────────────────────────────────────────
def test_4_6_followers_of_duplicates_average():
    model = load("search:prefix=2,vocab=9")
    assert run(model, "1 2 5 0 1 2 5 8 1 2").output == "5"  # both say so
    assert run(model, "1 2 4 0 1 2 6 8 1 2").output == "5"  # halfway
    assert run(model, "1 2 8 0 1 2 2 3 1 2 2 7 1 2").output == "4"  # (8 + 2 + 2)/3
    seen = {}
    model(
        model.vocabulary.encode("1 2 4 0 1 2 6 8 1 2"),
        hook=lambda name, x: seen.setdefault(name, x),
    )
    pattern = seen[f"blocks.{model.config.n_layers - 1}.attn.hook_pattern"][0, 0, -1]
    assert np.allclose(pattern[[2, 6]], 0.5, atol=0.05)


@pytest.mark.parametrize("variant", ["squares", "book"])
def test_4_6_a_query_that_is_not_there_finds_the_nearest(variant):
    model = load(f"search:prefix=3,vocab=30,variant={variant}")
    assert run(model, "9 1 15 20 4 7 22 28 3 16 2 1 15 21").output == "4"  # for 20 there is 21
    assert run(model, "9 1 15 20 4 7 22 28 3 16 2 2 15 20").output == "4"
    assert run(model, "9 1 15 20 4 7 22 28 3 16 2 7 22 27").output == "3"

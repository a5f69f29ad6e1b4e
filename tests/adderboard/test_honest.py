"""The honest board: bits of a form, entries of models and of files, and that no code is run."""

import math

import pytest

from glassformer import load, resolve
from glassformer.core.param_count import count
from glassformer.leaderboard import table as honest
from glassformer.leaderboard.table import (
    OUR_ADDERS,
    SEEDS_TRIED,
    file_entry,
    form_bits,
    model_entry,
    text_bits,
)
from helpers import raises


def test_bits_of_a_text():
    assert text_bits(["a", "b", "a", "a"]) == 4 * 1 + 8 * 2
    words = ["x", "=", "1", "+", "22"]
    assert text_bits(words) == 5 * math.ceil(math.log2(5)) + 8 * 6


def test_comments_docstrings_and_blanks_are_free_and_names_are_not():
    short = "def f(x):\n    return x + 1\n"
    wordy = '"""Words."""\n# more\n\ndef f(x):\n    """And more."""\n    return  x+1  # so\n'
    assert honest.source_words(short) == honest.source_words(wordy)
    longer = short.replace("x", "xyz")
    assert text_bits(honest.source_words(longer)) == text_bits(honest.source_words(short)) + 16


def test_a_formula_costs_and_a_table_pays_for_its_numbers():
    formula, table = load("adder-least"), load("addition:digits=10")
    assert form_bits(formula) > 10 * form_bits(table)
    assert count(formula).bits < count(table).bits


@pytest.mark.slow
def test_an_entry_has_what_is_known():
    model = load("adder-least")
    result = model_entry("adder-least", model, resolve.load_task(model))
    assert (result.counts, result.strict, result.made) == (3, 5, "by hand")
    assert result.known == "proved in float64" and result.bits == result.numbers + result.form
    assert result.to_json()["bits"] == result.bits


def test_every_trained_one_of_ours_tells_its_seeds():
    assert {ref for ref in OUR_ADDERS if ref.endswith(".safetensors")} == set(SEEDS_TRIED)


def test_someones_file_is_counted_and_not_run(tmp_path):
    file = tmp_path / "theirs.py"
    file.write_text("raise SystemExit('it ran')\n")
    result = file_entry(file)
    assert (result.counts, result.known, result.made) == (None, "unknown", "someone's file")
    assert result.bits == text_bits(["raise", "SystemExit", "(", "'it ran'", ")", "\n"])
    file.write_text("this is no Python")
    with raises("bad_argument", "theirs.py"):
        file_entry(file)


def test_who_waits_for_the_board_is_told_how_far_it_is(monkeypatch):
    monkeypatch.setattr(honest, "model_entry", lambda name, *of: name)
    seen = []
    assert [*honest.table_entries(["mine"], lambda ref: (), seen.append)] == [
        *honest.OUR_ADDERS,
        "mine",
    ]
    assert [(p.done, p.total) for p in seen] == [
        (i, len(honest.OUR_ADDERS)) for i in range(len(seen))
    ]
    assert len(seen) == len(honest.OUR_ADDERS)

"""The tour: its quick parts, and (slow) all of it."""

import io
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from glassformer import guided_tour, load, load_task
from glassformer.verification import Verdict
from helpers import prove_once


def said(part):
    out = Console(file=io.StringIO(), width=200, markup=False)
    return part(out), out.file.getvalue()


def test_quick_parts():
    assert "takes away the digits written" in said(guided_tour.explain_token)[1]
    assert "after 0 2 1 it writes 2" in said(guided_tour.print_text_program)[1]


def test_six_claims_each_with_its_source_and_a_sentence():
    differ, text = said(guided_tour.measure_claims)
    lines = text.splitlines()[3:-1]
    assert differ == 0 and len(lines) == 12 and "6 claims, 0 differ" in text
    for source, claim in zip(lines[::2], lines[1::2], strict=True):
        assert source.startswith(("  The booklet, ", "  How a Transformer", "  Nanda et al., "))
        assert "Nanda et al., Nanda" not in source
        assert len(claim.split()) > 4 and "True" not in claim, claim
    assert sum("wrong: " in line for line in lines) and sum("holds: " in line for line in lines)


def test_what_comes_next_can_be_typed(call):
    for command, _ in guided_tour.NEXT_COMMANDS:
        assert call(*command.split()[1:2], "--help")[0] == 0, command
    assert call("explain", "addition:order=ones", "127+458=5")[1].startswith("After 1 2 7")


def test_a_million_sums_are_counted_through_once(monkeypatch):
    counted = []
    right = Verdict("", "", "float64", 1, True, 1, 1, 0, 1.0)
    monkeypatch.setattr(guided_tour, "verify", lambda *a, **k: counted.append(a) or right)
    guided_tour._load_and_verify.cache_clear()
    done = SimpleNamespace(
        model=load("adder-3.safetensors"), events=[], steps=1, seconds=1.0, accuracy=1.0
    )
    monkeypatch.setattr("glassformer.training.fit", lambda *a: done)
    said(guided_tour.verify_programs)
    assert len(counted) == len(guided_tour.PROGRAM_EXAMPLES)
    said(guided_tour.train_adder)
    guided_tour._load_and_verify.cache_clear()
    assert (
        len(counted) == len(guided_tour.PROGRAM_EXAMPLES) + 1
    )  # the trained one; the hand-made was counted before


def test_what_was_trained_is_told_as_it_is(monkeypatch):
    """An adder that is right on its test and wrong on some sums: on which, and on how many."""
    model = load("adder-3.safetensors")
    weights = {n: w.copy() for n, w in model.weights.items()}
    weights["embed.W_E"] *= 1.5
    done = SimpleNamespace(
        model=replace(model, weights=weights), events=[], steps=1, seconds=1.0, accuracy=1.0
    )
    monkeypatch.setattr("glassformer.training.fit", lambda *a: done)
    monkeypatch.setattr(guided_tour, "TRAINED_SAMPLE_ROWS", 300)
    right = Verdict("", "", "float64", 1, True, 1, 1, 0, 1.0)
    monkeypatch.setattr(guided_tour, "_load_and_verify", lambda ref: (load(ref), right))
    (failed, missed, _), text = said(guided_tour.train_adder)
    edges = len(load_task(model).edges())
    looked_at = (
        f"{missed:,} wrong of {edges + 300:,} sums, {edges:,} edge cases and 300 drawn at random"
    )
    assert (failed, missed > 0) == (0, True) and looked_at in text and "searched" not in text
    reported = str(guided_tour.TourResult(0, Path("x.html"), 1.0, missed))
    assert f"wrong on {missed:,} of the sums checked" in reported and "everything" not in reported
    assert "wrong" not in str(guided_tour.TourResult(0, Path("x.html"), 1.0))
    assert "1 of its programs" in str(guided_tour.TourResult(1, Path("x.html"), 1.0))


@pytest.mark.slow
def test_ten_digits_are_proved(monkeypatch):
    monkeypatch.setattr(guided_tour, "prove", prove_once)
    failed, text = said(guided_tour.prove_adders)
    assert failed == 0 and text.count(": proved, ") == 2 and "made from 3 numbers" in text


def test_a_compiled_model_that_is_not_proved_is_counted(monkeypatch):
    failed = SimpleNamespace(holds=False, result="unknown", dtype="float32", reason="open")
    monkeypatch.setattr(guided_tour, "prove", lambda *a: failed)
    wrong, text = said(guided_tour.compile_sort)
    assert wrong == 1 and "unknown in float32: open" in text


def test_what_is_trained_and_proved_needs_pytorch(monkeypatch):
    monkeypatch.setattr(guided_tour, "find_spec", lambda name: None)
    assert "10^40 of 20?\n\n  skipped: needs PyTorch" in said(guided_tour.prove_longer_adder)[1]


def test_it_ends_in_a_report(tmp_path):
    page = tmp_path / "tour.html"
    text = said(lambda out: guided_tour.write_report(out, load("adder-3.safetensors"), page))[1]
    assert "head 1.0" in text and "tour.html" in text
    assert b"addition:order=ones" in page.read_bytes()


def test_it_leaves_four_walks_to_read(tmp_path, monkeypatch):
    made = {"A walk": tmp_path / "t-explained/a.html"}
    monkeypatch.setattr(
        "glassformer.report_page.explained.write_walkthroughs", lambda folder: made | {"f": folder}
    )
    text = said(lambda out: guided_tour.write_walkthroughs(out, tmp_path / "t.html"))[1].replace(
        "\n", ""
    )
    assert "A walk: " in text and text.count("t-explained") == 2


@pytest.mark.slow
def test_all_of_it(tmp_path):
    result, text = said(lambda out: guided_tour.tour(tmp_path / "tour.html", console=out))
    assert result.holds and (tmp_path / "tour.html").exists()
    assert "all 1,000,000      0" in text and "10000000000" in text
    assert (
        "100.00% of 10,000 test sums right" in text
        and "hand-made: 262 parameters, 0 wrong of 1,000,000" in text
    )
    assert "0 differ from our record" in text
    # which seeds are right is the processor's: but what is right on the test goes to the prover
    right = re.search(r"4 seeds at once, 86 numbers each, \d+ s: (\d) right", text)
    tried = re.findall(r"the same numbers, 20 digits: (proved|refuted|unknown)", text)
    assert right and (tried[-1:] == ["proved"] or len(tried) == int(right[1]))
    assert {p.stem for p in (tmp_path / "tour-explained").iterdir()} > {"160-numbers", "sort"}

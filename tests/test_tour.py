"""The tour: its quick parts, and (slow) all of it."""

import io

import pytest
from rich.console import Console

from glassformer import load, tour
from helpers import prove_once


def said(part):
    out = Console(file=io.StringIO(), width=200, markup=False)
    return part(out), out.file.getvalue()


def test_quick_parts():
    assert "takes away the digits written" in said(tour.one_token)[1]
    assert "after 0 2 1 it says 2" in said(tour.as_text_program)[1]


def test_six_claims_each_with_its_source_and_a_sentence():
    differ, text = said(tour.claims)
    lines = text.splitlines()[3:-1]
    assert differ == 0 and len(lines) == 12 and "6 claims, 0 differ" in text
    for source, claim in zip(lines[::2], lines[1::2], strict=True):
        assert source.startswith(("  The booklet, ", "  How a Transformer", "  Nanda et al., "))
        assert "Nanda et al., Nanda" not in source
        assert len(claim.split()) > 4 and "True" not in claim, claim
    assert sum("wrong: " in line for line in lines) and sum("holds: " in line for line in lines)


def test_what_comes_next_can_be_typed(call):
    for command, _ in tour.NEXT:
        assert call(*command.split()[1:2], "--help")[0] == 0, command
    assert call("explain", "addition:order=ones", "127+458=5")[1].startswith("After 1 2 7")


@pytest.mark.slow
def test_ten_digits_are_proved(monkeypatch):
    monkeypatch.setattr(tour, "prove", prove_once)
    monkeypatch.setattr(
        tour, "PROVED", ("addition:digits=10", "adder-least")
    )  # which documents prove as well
    failed, text = said(tour.proved)
    assert failed == 0 and text.count(": proved, ") == 2 and "made from 3 numbers" in text


def test_it_ends_in_a_report(tmp_path):
    page = tmp_path / "tour.html"
    text = said(lambda out: tour.side_by_side(out, load("adder-3.safetensors"), page))[1]
    assert "head 1.0" in text and "tour.html" in text
    assert b"addition:order=ones" in page.read_bytes()


@pytest.mark.slow
def test_all_of_it(tmp_path):
    status, text = said(lambda out: tour.tour(out, tmp_path / "tour.html"))
    assert status == 0 and (tmp_path / "tour.html").exists()
    assert "all 1,000,000      0" in text and "10000000000" in text
    assert (
        "100.00% of 10,000 test sums right" in text
        and "hand-made: 262 parameters, 0 wrong of 1,000,000" in text
    )
    assert "0 differ from our record" in text

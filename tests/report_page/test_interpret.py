"""The page's interpreter agrees with compiler/interpreter.py."""

import numpy as np
import pytest

from glassformer import load
from glassformer.compiler import library
from glassformer.compiler.driver import simplified_program
from glassformer.compiler.frontend.parser import read
from glassformer.compiler.interpreter import trace
from glassformer.report_page.sources import MAX_TABLE_BYTES, source_payload, value_tables

TRACED = "x[1].map((text) => trace({values: x[0]}, text))"
FEW = ("addition", "by-frequency", "dyck-2", "median", "sort", "scan", "vowel-ratio")


def compare(engine, name, n):
    program = simplified_program(read(library.source_paths()[name].read_text("utf-8"), name))[0]
    kept, size = value_tables(program)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, len(program.tokens), rng.integers(1, program.length + 1)).tolist()
             for _ in range(n)]  # fmt: skip
    got = engine(TRACED, None, kept, texts)
    for text, values in zip(texts, got, strict=True):
        wanted = trace(program, np.array([text]))
        for value, members in zip(program.values, values, strict=True):
            assert wanted[value][0].tolist() == members, (name, value.name, text)
    return size


@pytest.mark.parametrize("name", FEW)
def test_values_agree(engine, name):
    compare(engine, name, 10)


@pytest.mark.slow
def test_every_source_of_the_library(engine):
    sizes = {name: compare(engine, name, 4) for name in library.source_paths()}
    assert sum(size <= MAX_TABLE_BYTES for size in sizes.values()) > 0.8 * len(sizes), sizes


def test_all_kinds_of_values_are_compared():
    """The few sources have all six kinds, selectors with an order and counts with tests."""
    kinds, ordered, tested = set(), 0, 0
    for name in FEW:
        for value in value_tables(
            simplified_program(read(library.source_paths()[name].read_text("utf-8"), name))[0]
        )[0]:
            kinds.add(value["kind"])
            ordered += bool(value.get("order"))
            tested += value["kind"] == "count" and bool(value["tests"])
    assert kinds == {"token", "position", "map", "sum", "select", "count"} and ordered and tested


def test_large_tables_are_left_out(engine, monkeypatch):
    model = load("lang/reverse")
    assert source_payload(model)["values"] and not source_payload(model)["problem"]
    monkeypatch.setattr("glassformer.report_page.sources.MAX_TABLE_BYTES", 10)
    reported = source_payload(model)
    assert reported["values"] is None and " 10:" in reported["problem"]
    result = engine("slotContents(m, record(m, [0, 4, 2, 11]), [0, 4, 2, 11])", model)
    assert {s["means"] for s in result} == {""}  # without the interpreter's values
    assert any(s["kind"] == "value" for s in result)


def test_a_program_has_no_source():
    assert source_payload(load("addition:digits=3")) is None

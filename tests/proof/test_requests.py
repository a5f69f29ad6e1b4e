"""Options of `prove`, and calls that are refused before the work."""

import json

import pytest

import glassformer as gf
from glassformer import GlassformerError


@pytest.mark.parametrize("ref", ["reverse:length=8", "reverse:length=3", "lang/reverse"])
def test_a_file_is_refused_where_proofs_have_no_certificate(tmp_path, ref):
    with pytest.raises(GlassformerError) as refusal:
        gf.prove(ref, out=tmp_path / "c.json")
    assert refusal.value.code == "bad_argument" and not [*tmp_path.iterdir()]


def test_a_file_asks_for_a_certificate_where_every_row_could_be_run(tmp_path):
    path = tmp_path / "c.json"
    proof = gf.prove("addition:digits=2", out=path)
    assert proof.holds and proof.method == "certificate"
    assert gf.prove("addition:digits=2", check=path).holds
    assert json.loads(path.read_text())["cases"] == proof.cases
    with pytest.raises(GlassformerError):
        gf.prove("addition:digits=2", method="enumeration", out=path)


def test_an_independent_check_of_a_task_without_certificates():
    pytest.importorskip("flint")
    proof = gf.prove("reverse:length=3", independent_check=True)
    assert proof.method == "enumeration" and proof.independent


def test_inputs_without_a_defined_answer_are_counted():
    task = gf.load_task("search:prefix=2,vocab=3,block=7")
    proof = gf.prove("search:prefix=2,vocab=3,block=7", independent_check=False)
    assert proof.cases < task.size
    assert f"{task.size - proof.cases:,} inputs have no defined answer" in proof.reason

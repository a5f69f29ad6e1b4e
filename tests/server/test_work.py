"""The server's requests: models, source errors with locations, edits, verdicts, proofs."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
import mutants
from glassformer.core.checkpoint import digest, to_bytes
from glassformer.server.catalogue import Catalogue
from glassformer.server.errors import split_locations
from glassformer.server.handlers import Handlers, apply_edits
from helpers import raises
from server.conftest import ADDER, GLASS, TAOTP

MARKUP = "<script>hacked=1</script><img src=x onerror=hacked=1>"


def test_messages_have_locations():
    assert split_locations("source:3:7 — no\nsource:4 — nor this\nelse — where") == [
        {"line": 3, "column": 7, "message": "no"},
        {"line": 4, "column": None, "message": "nor this"},
        {"line": None, "column": None, "message": "else — where"},
    ]


@pytest.mark.parametrize("name", ["tokens", "length"])
def test_a_name_assigned_twice_is_an_error_with_its_line(served, name):
    source = f"tokens = [0, 1]\nlength = 5\n{name} = 3\nemit = count(token == 1) % 2\n"
    wrong = served.model(source=source)["errors"]
    assert [each["line"] for each in wrong] == [3] and name in wrong[0]["message"]


def test_mutated_sources_cause_no_server_error(served):
    made = {"glass": mutants.glass(15, 5), "taotp": mutants.text_programs(15, 5)}
    for kind, texts in made.items():
        for text in texts:
            answer = served.post("model", source=text.replace("\ud800", ""), kind=kind)
            assert answer.status_code == 200, text


def test_a_checkpoint_does_not_choose_its_task(served):
    model = gf.compile(GLASS).model
    for claim in ("lang/reverse", "parity.glass", "additi\u043en", "/etc/x.glass"):
        data = base64.b64encode(to_bytes(replace(model, task=claim))).decode()
        expected = f"the embedded source (named {claim!a})"
        assert served.model(checkpoint=data)["task"]["ref"] == expected
        for kind in ("prove", "verify"):
            reported = served.job(kind, checkpoint=data)["result"]
            assert (reported.get("proof") or reported["verdict"])["task"] == expected


def test_a_model_by_its_ref(served):
    result = served.model(ref=ADDER)
    assert result["digest"] == digest(gf.load(ADDER)) and result["ref"] == ADDER
    assert result["task"]["ref"] == ADDER and result["inputs"]
    names = served.client.get("/api/refs").json()
    assert ADDER in names["typed"] and "lang/sort" in names["lang"] and "fast" in names["recipes"]


def test_the_recipes_are_those_of_the_command_line(served):
    names = served.client.get("/api/refs").json()["recipes"]
    assert sorted(names) == sorted(gf.list("recipes")) and names[0] == "auto"
    for name in ("", *names):  # each is taken, and what is wrong is the field
        reported = served.job("train", task=ADDER, recipe=name, settings={"lrr": 1})
        assert "lrr" in reported["errors"][0]["message"]
    reported = served.job("train", task=ADDER, recipe="suted")
    assert "suted" in reported["errors"][0]["message"]


def test_source_errors_have_locations(served):
    assert served.model(source=GLASS)["digest"] == digest(gf.compile(GLASS).model)
    wrong = served.model(source=GLASS.replace("first(", "fist(") + "x = y\n")["errors"]
    assert [(e["line"], e["column"]) for e in wrong] == [(3, 8), (4, 5)]
    assert "first" in wrong[0]["message"] and "source" not in wrong[0]["message"]


def test_text_errors_have_locations(served):
    assert served.model(source=TAOTP, kind="taotp")["digest"] == digest(gf.taotp.parse(TAOTP))
    wrong = served.model(source=TAOTP.replace("-1", "minus", 1), kind="taotp")["errors"]
    assert wrong[0]["line"] == 3


def test_a_checkpoint_is_read_only_with_a_valid_seal(served):
    data = to_bytes(gf.load(ADDER))
    decoded = base64.b64encode(data).decode()
    assert served.model(checkpoint=decoded)["digest"] == digest(gf.load(ADDER))
    flipped = base64.b64encode(data[:-1] + bytes([data[-1] ^ 1])).decode()
    assert served.model(checkpoint=flipped)["code"] == "damaged_file"
    assert served.model(checkpoint="no!")["code"] == "bad_argument"
    assert served.model(checkpoint="")["code"] == "damaged_file"


def test_edits_are_checked_and_applied():
    model = gf.load(ADDER)
    edit = {"name": "embed.W_E", "index": [1, 0], "value": 7.5}
    result = apply_edits(model, [edit])
    changed = np.argwhere(result.weights["embed.W_E"] != model.weights["embed.W_E"]).tolist()
    assert changed == [[1, 0]] and result.weights["embed.W_E"][1, 0] == 7.5
    assert apply_edits(model, []) is model
    low = replace(gf.load("adder-10-7p.safetensors"))
    assert low.parametrization and not apply_edits(low, [edit | {"index": [0, 0]}]).parametrization
    for bad, code, mention in (
        ({"name": "embed.W_X"}, "not_found", "embed.W_X"), ({"index": [1]}, "bad_argument", "[1]"),
        ({"index": [1, 99]}, "bad_argument", "[1, 99]"),
        ({"index": [1, 0, 0]}, "bad_argument", "[1, 0, 0]"),
    ):  # fmt: skip
        with raises(code, mention):
            apply_edits(model, [edit | bad])
    small = gf.load("adder-3.safetensors")
    with raises("bad_argument", "embed.W_E", "1e+300"):
        apply_edits(small, [edit | {"value": 1e300}])


def test_verify_runs_the_whole_domain(served):
    reported = served.job("verify", ref=ADDER)
    verdict = reported["result"]["verdict"]
    assert reported["state"] == "done" and verdict["exhaustive"] and verdict["checked"] == 100
    assert (
        verdict["wrong"] == 0
        and reported["progress"]["done"] == reported["progress"]["total"] == 100
    )
    assert reported["result"]["counterexample"] is None
    margin = gf.verify(ADDER).worst_margin
    assert reported["result"]["margin"] == pytest.approx(margin, rel=1e-9)
    assert served.job("verify", ref=ADDER, sample=10)["result"]["verdict"]["sample"] == 10


class FakeChannel(list):
    """A progress channel that keeps its messages."""

    send = list.append


BREAK = [{"name": "embed.W_E", "index": [3, 0], "value": -9999.0}]


def test_an_edit_breaks_the_proof_with_a_counterexample(served):
    reported = served.job("prove", ref=ADDER)
    watched = {"stage": "proving", "done": 100, "total": 100, "wrong": 0}
    assert reported["progress"] == watched
    right = reported["result"]
    assert right["proof"]["result"] == "proved" and right["margin"] > 0
    reported = served.job("prove", ref=ADDER, edits=BREAK)
    assert reported["result"]["proof"]["result"] == "refuted"
    result = reported["result"]["counterexample"]
    assert result["got"] != result["expected"] and reported["progress"]["counterexample"]
    assert reported["result"]["margin"] == result["margin"] < 0
    model = apply_edits(gf.load(ADDER), BREAK)
    assert gf.run(model, result["input"]).output == result["got"]


LARGE = pytest.param("adder-coupled:digits=22", marks=pytest.mark.slow)  # numbers beyond int64


@pytest.mark.parametrize("ref", ["adder-least", LARGE])
def test_the_model_can_read_the_text_of_a_counterexample(ref):
    """For any tokens and numbers of any length."""
    handlers, line = Handlers(Catalogue([], [], None)), FakeChannel()
    edits = [{"name": "embed.W_E", "index": [1, 0], "value": -9999.0}]
    for do, more in (("prove", {}), ("verify", {"sample": 100})):
        result = handlers.handle(do, {"ref": ref, "edits": edits, **more}, line)["counterexample"]
        assert gf.run(apply_edits(gf.load(ref), edits), result["input"]).output == result["got"]
    early = next(reported["counterexample"] for reported in line if "counterexample" in reported)
    assert "+" in early["input"]


def test_a_compiled_model_is_proved_and_refuted(served):
    assert served.job("prove", source=GLASS)["result"]["proof"]["method"] == "compiled"
    edit = [{"name": "unembed.W_U", "index": [0, 0], "value": 1e6}]
    reported = served.job("prove", source=GLASS, edits=edit)["result"]["proof"]
    assert reported["result"] in ("refuted", "unknown")


def test_a_compiled_proof_reports_its_stages():
    handlers, line = Handlers(Catalogue([], [], None)), FakeChannel()
    given = {"ref": "lang/sort:vocab=3,length=2"}
    assert handlers.handle("prove", given, line)["proof"]["result"] == "proved"
    doing = [reported["stage"] for reported in line if "stage" in reported]
    assert doing == ["compiling", "trying edge cases", "proving"]
    far = [(reported["done"], reported["total"]) for reported in line if "done" in reported]
    assert far == sorted(far) and len(far) > 2 and far[-1][0] == far[-1][1]
    edits = [{"name": "unembed.W_U", "index": [0, 0], "value": 0.25}]
    handlers.handle("prove", given | {"edits": edits}, line)
    assert handlers.compiled.cache_info().hits == 1  # compiled once, also after edits


def test_a_model_without_a_matching_task_is_not_judged(served):
    reported = served.job("prove", source=TAOTP, kind="taotp")
    assert reported["state"] == "wrong" and reported["code"] == "bad_argument"
    reported = served.job("verify", ref=ADDER, task="sort")
    assert reported["state"] == "wrong" and reported["result"] is None
    assert served.job("verify", ref="additoin")["code"] == "not_found"


def test_a_puzzle_is_judged(served):
    from glassformer.puzzles import levels

    first = next(iter(levels().values()))
    data = served.post("check", level=first.id, text="nonsense").json()
    assert data["level"] == first.id and not data["right"] and data["problem"]
    data = served.post("check", level="no-such-level", text="").json()
    assert data["code"] == "not_found" and "no-such-level" in data["problem"]


def test_markup_comes_back_as_text(served):
    """In refs, sources and labels. No answer is an HTML page."""
    for body in (
        {"ref": MARKUP}, {"ref": f"hello-world:message={MARKUP}"},
        {"source": f'"""{MARKUP}"""\nx = 1'},
        {"source": f'tokens: ["{MARKUP}"]', "kind": "taotp"}, {"source": GLASS.replace("ab", "<>")},
    ):  # fmt: skip
        answer = served.post("model", **body)
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert json.loads(answer.content)
    answer = served.post("model", **{MARKUP: 1})
    assert answer.status_code == 422 and answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "body",
    [
        {}, {"ref": ADDER, "source": GLASS}, {"ref": None}, {"ref": 7}, {"ref": ["x"]},
        {"ref": ADDER, "more": 1},
        {"source": "x", "kind": "python"}, {"ref": ADDER, "edits": [{"name": "x"}]},
        {"ref": ADDER, "edits": [{"name": "x", "index": [-1], "value": 1}]},
        {"ref": ADDER, "edits": [{"name": "x", "index": [0], "value": "1"}]},
        {"ref": ADDER, "edits": [{"name": "x", "index": [0] * 9, "value": 1}]},
        {"ref": ADDER, "edits": [{}] * 30_000}, {"source": "x" * 500_000}, {"ref": "x" * 20_000},
        {str(i): i for i in range(5_000)}
    ],
)  # fmt: skip
def test_invalid_requests_are_refused_with_one_line(served, body):
    answer = served.post("model", **body)
    assert answer.status_code == 422 and list(answer.json()) == ["error", "code"]
    assert len(answer.json()["error"]) < 400


def test_many_unknown_fields_are_one_error(served):
    """Each would otherwise be an error and take memory."""
    answer = served.post("model", **{str(i): i for i in range(5_000)})
    assert "20" in answer.json()["error"] and "5,000" in answer.json()["error"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '"x"', "NaN", '{"ref": NaN}', '{"ref": 1e999}', "[" * 100_000,
     "\xff", '{"ref": "\\ud800"}', '{"ref": "a\\u0000"}', "9" * 10_000,
     '{"ref": "min", "edits": [{"name": "embed.W_E", "index": [0, 0], "value": Infinity}]}'],
)  # fmt: skip
@pytest.mark.some(3)
def test_odd_json_is_an_error_of_the_client(served, text):
    kind = {"content-type": "application/json"}
    answer = served.client.post("/api/model", content=text.encode("latin-1"), headers=kind)
    assert answer.status_code in (200, 400, 422), answer.text
    assert "error" in answer.json() or "errors" in answer.json()

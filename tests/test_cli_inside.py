"""The commands inspect and compare."""

import json

import pytest


def test_inspect_prints_and_writes(call, tmp_path):
    folder = tmp_path / "inside"
    status, out, err = call("inspect", "adder-3.safetensors", "--sample", 200, "--out", folder,
        "--input", "999+1",
                            "--only", "heads,ablations,logit-lens,interchange")  # fmt: skip
    assert (status, err) == (0, "")
    assert "9 9 9 + 0 0 1 = 0 0 0 1" in out and "same-column" in out and "inspection.json" in out
    views = json.loads((folder / "inspection.json").read_text())["views"]
    assert views["ablations"][0]["accuracy"] == 1.0
    drawn = {"attention-summary.png", "ablations.png", "logit-lens.png", "interchange.png"}
    assert {p.name for p in folder.iterdir()} == drawn | {"inspection.json"}


def test_inspect_takes_several_inputs(call, tmp_path):
    words = ["inspect", "modular-addition:plus=true", "--only", "heads", "--sample", 50]
    status, out, err = call(
        *words, "--input", "7+9", "--input", "90+90", "--out", tmp_path, "--json"
    )
    data = json.loads(out)
    assert (status, err) == (0, "") and (tmp_path / "attention-summary.png").exists()
    inputs = data["views"]["heads"]["inputs"]
    assert [*inputs] == ["7 + 9 =", "90 + 90 ="] and data["shown"][:4] == ["7", "+", "9", "="]
    assert all(abs(share - 0.25) < 1e-6 for x in inputs.values() for share in x[0][0])
    assert "from the last position of 90 + 90 =" in call(*words, "--input", "90+90")[1]


def test_inspect_draws_weights(call, tmp_path):
    name = "blocks.0.attn.W_K"
    words = ["inspect", "reverse", "--only", "weights", "--matrix", name, "--sample", 9]
    status, out, err = call(*words, "--out", tmp_path, "--json")
    assert (status, err) == (0, "") and (tmp_path / "weights.png").stat().st_size > 5_000
    assert [m["name"] for m in json.loads(out)["views"]["weights"]] == [name]


def test_inspect_before_and_after(call, tmp_path):
    words = ["inspect", "reverse-5.safetensors", "--before", "start", "--sample", 20]
    status, out, err = call(*words, "--only", "tokens,positions", "--out", tmp_path)
    assert (status, err) == (0, "") and out.count("before: ") == 2 == out.count("after: ")
    assert {p.name for p in tmp_path.glob("*.png")} == {"tokens.png", "positions.png"}


def test_inspect_json_is_one_object(call):
    status, out, err = call(
        "inspect", "reverse", "--sample", 50, "--only", "heads,alignment", "--json"
    )
    data = json.loads(out)
    assert (status, err) == (0, "")
    assert (
        list(data["views"]) == ["heads", "alignment"]
        and data["views"]["heads"]["heads"][0]["kind"] == "source"
    )


@pytest.mark.slow
def test_compare_hand_made_and_trained(call, tmp_path):
    figure = tmp_path / "both.png"
    status, out, err = call("compare", "addition:digits=3,order=ones", "adder-3.safetensors",
        "--sample", 300,
                            "--figure", figure)  # fmt: skip
    assert (status, err) == (0, "")
    assert "Outputs differ on 0 rows" in out and "17,760" in out and figure.stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "a, b", [("reverse", "reverse-5.safetensors"), ("modular-addition", "grok-113.safetensors")]
)
def test_compare_works_out_of_the_box(call, a, b):
    status, out, _ = call("compare", a, b, "--sample", 100, "--json")
    data = json.loads(out)
    assert status == 0 and data["differ"] == 0 and data["attention"]["best"]


def test_models_that_differ_end_in_status_1(call):
    status, out, _ = call("compare", "modular-addition:p=7", "modular-addition:p=7,operation=-",
        "--task",
                          "modular-addition:p=7", "--json")  # fmt: skip
    assert status == 1 and json.loads(out)["differ"] > 0


BAD = [
    (["inspect", "reverse", "--only", "haeds"], "view 'haeds': did you mean heads?"),
    (["inspect", "reverse", "--input", "12"], "expected 5 of"),
    (["inspect", "reverse", "--matrix", "W_Q"], "matrix 'W_Q': "),
    (["inspect", "reverse", "--figures", "gif"], "--figures gif — expected png"),
    (["inspect", "reverse", "--out", "/proc/nothing/here"], "cannot be made"),
    (["inspect", "figure-8.2.taotp", "--sample", "5"], "task="),
    (["inspect", "figure-8.2.taotp", "--only", "ablations"], "expected a task"),
    (["inspect", "reverse", "--task", "addition"], "the model's vocabulary"),
    (["compare", "reverse", "addition"], "expected two models of one task"),
    (["compare", "reverse", "reverse", "--figure", "x.bmp"], ".png"),
    (["compare", "reverse", "nothing.safetensors"], "cannot be read"),
]


@pytest.mark.parametrize("words, message", BAD)
def test_bad_input_is_one_line(call, words, message):
    status, out, err = call(*words)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1

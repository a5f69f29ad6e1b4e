"""The command line, as a person uses it: what it prints, and what it says to bad input."""

import io
import json
import re
import shlex
import string
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from safetensors.numpy import save_file

import glassformer as gf
from cases import CASES
from glassformer import __version__, load
from glassformer.cli.common import app
from glassformer.cli.entry import COMMAND_ORDER, load_commands
from glassformer.core.checkpoint import save


@pytest.mark.parametrize("ref,text,output", CASES)
@pytest.mark.some(4)
def test_run_says_what_the_table_says(call, ref, text, output):
    assert call("run", ref, text) == (0, output + "\n", "")
    status, out, _ = call("run", ref, text, "--json")
    got = json.loads(out)
    assert status == 0 and got["input"] == text and got["output"] == output
    assert got["tokens"] and all(type(t) is int for t in got["tokens"])


def test_hello_world(call):
    assert call("run", "hello-world") == (0, "Hello World!\n", "")


def test_version_and_help(call):
    assert call("--version") == (0, f"{__version__}\n", "")
    assert call("-V") == call("--version")
    assert "--version" in call()[1] and call() == call("--help") == call("-h")
    assert call("run", "-h") == call("run", "--help")


@pytest.mark.parametrize("words", [
    "ground-truth reverse --out x.txt", "inspect reverse --only ,",
    "prove reverse --seed 1" + 40 * "0",
    "ablation-study no-such-task --figure x.txt",
    # the value of an unset variable
    "ablation-study addition --out ''", "ablation-study addition --only ''",
    "export reverse --to gpt2 --out ''", "inspect reverse --out ''",
    "train addition --out x.safetensors --snapshots ''",
    # a name that is no folder's
    "inspect reverse --out x.json", "train addition --out x.safetensors --snapshots x.safetensors",
    "obfuscate reverse --out x.safetensors --key key.txt",
])  # fmt: skip
def test_refused_before_any_work(call, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("glassformer.resolve.load", lambda *_: pytest.fail("work was begun"))
    status, out, err = call(*shlex.split(words))
    assert (status, out, err.count("\n")) == (2, "", 1) and "no-such-task" not in err
    assert "--key" not in words or "key:" in err
    assert not [*tmp_path.iterdir()]


def test_options_without_a_command(call):
    """Every option of every command, and short ones: a line and status 2, unless it is for all."""
    load_commands()  # registers them
    parameters = [p for c in typer.main.get_command(app).commands.values() for p in c.params]
    options = {o for p in parameters for o in (*p.opts, *p.secondary_opts) if o.startswith("-")}
    options |= {f"-{letter}" for letter in string.printable.strip()}
    assert len(options) > 150
    for option in sorted(options - {"-h", "-V", "--help", "--version"}):
        for words in ([option], [option, "3"], [f"{option}=3"]):
            status, out, err = call(*words)
            assert (status, out, err.count("\n")) == (2, "", 1), (words, err)


def test_one_command_per_file_in_order():
    commands = load_commands()
    for command in commands:
        name = command.name.replace("-", "_")
        assert command.callback.__module__ == f"glassformer.cli.{name}"
    assert (*(c.name for c in commands), "puzzle") == COMMAND_ORDER


@pytest.mark.parametrize("words", [
    ["--sample", "5"], ["--all"], ["--seed", "0"], ["--dtype", "float32"], ["--search", "3"],
])  # fmt: skip
def test_recheck_refuses_sampling_options(call, words):
    status, out, err = call("verify", "add-digit", "--recheck", "v.json", *words)
    assert (status, out, err.count("\n")) == (2, "", 1) and f"leave out {words[0]}" in err


def test_run_several_inputs(call):
    assert call("run", "addition:digits=2", "1+2", "99+99")[1] == "003\n198\n"
    assert [
        r["output"]
        for r in json.loads(call("run", "addition:digits=2", "1+2", "99+99", "--json")[1])["runs"]
    ] == [
        "003",
        "198",
    ]


@pytest.mark.parametrize("ref,words,output", [
    ("sort", ["5", "3", "1"], "1 3 5"), ("sort-digits", ["12", "5", "07"], "05 07 12"),
    ("modular-addition", ["90", "90"], "67"), ("max:vocab=20", ["3", "12", "7"], "12"),
    ("add-digit", ["7", "8"], "5"), ("addition:digits=2", ["0", "4", "+", "0", "2", "="], "006"),
    ("addition:digits=2", ["12", "+", "34"], "046"), ("reverse", [*"12345"], "54321"),
])  # fmt: skip
def test_words_that_are_tokens_make_one_text(call, ref, words, output):
    status, out, err = call("run", ref, *words)
    assert (status, out) == (0, output + "\n") and f'one text: "{" ".join(words)}"' in err
    status, out, _ = call("run", ref, *words, "--json")
    assert json.loads(out)["input"] == " ".join(words)


@pytest.mark.parametrize("ref,words,output", [
    ("sort", ["5 3 1", "2 1"], "1 3 5\n1 2\n"), ("sort", ["5,3", "2"], "3 5\n2\n"),
    ("modular-addition", ["5+8", "90+90"], "13\n67\n"),
    ("reverse", ["12345", "54321"], "54321\n12345\n"), ("add-digit", ["48", "57"], "2\n2\n"),
    ("hello-world", ["H", "e"], "ello World!\nello World!\n"),
])  # fmt: skip
def test_words_that_are_texts_stay_apart(call, ref, words, output):
    assert call("run", ref, *words) == (0, output, "")


def test_texts_by_standard_input(call, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1+2\n\n 99+99\r\n"))
    assert call("run", "addition:digits=2", "4+4", "-") == (0, "008\n003\n198\n", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n3\n"))
    assert call("run", "sort", "-") == (0, "5\n3\n", "")  # one text a line, whatever it holds
    raw = io.TextIOWrapper(io.BytesIO(b"1+\xff"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", raw)
    assert call("run", "addition", "-")[2] == "error: standard input — expected text in UTF-8\n"


def test_run_trace(call):
    status, out, _ = call("run", "addition:digits=2", "45+78", "--trace")
    assert (
        status == 0
        and out.splitlines()[-1] == "123"
        and "margin" in out.splitlines()[0]
        and "45+78=12" in out
    )
    trace = json.loads(call("run", "addition:digits=2", "45+78", "--trace", "--json")[1])["trace"]
    assert [row["top"][0][0] for row in trace] == ["1", "2", "3"] and trace[0]["margin"] > 0
    assert trace[0]["heads"][0]["read"]


def test_run_samples(call):
    words = ("run", "repeat-last:vocab=5", "3", "--steps", 12, "--temperature", 50, "--seed", 1)
    assert call(*words)[1] == call(*words)[1] != call(*words[:-1], 2)[1]


def test_count(call):
    got = json.loads(call("count", "hello-world:variant=book", "--json")[1])
    assert (got["total"], got["unique"], got["embedding"]) == (72, 72, 72) and got["nonzero"] <= 72
    out = call("count", "hello-world:variant=book")[1]
    assert "72" in out and "embed.W_E" in out
    lines = [line.split() for line in call("count", "book-3.safetensors")[1].splitlines()]
    assert ["layer", "1", "4,096", "4,192", "128", "8,416"] in lines
    assert ["sum", "864", "8,192", "8,384", "320", "17,760"] in lines
    got = json.loads(call("count", "book-3.safetensors", "--json")[1])
    assert got["components"]["final norm"] == {"norms": 64} and got["kinds"]["norms"] == 320


def test_verify(call):
    status, out, _ = call("verify", "add-digit", "--json")
    got = json.loads(out)
    assert status == 0 and (got["checked"], got["wrong"], got["domain"], got["exhaustive"]) == (
        100,
        0,
        100,
        True,
    )
    assert got["worst_margin"] > 0 and got["counterexamples"] == []
    assert "0 wrong of 100" in call("verify", "add-digit")[1]


def test_verify_says_what_is_wrong(call, tmp_path):
    model = load("add-digit")
    broken = {n: w.copy() for n, w in model.weights.items()}
    broken["embed.W_E"][3] = broken["embed.W_E"][4]
    from dataclasses import replace

    path = save(replace(model, weights=broken), tmp_path / "broken.safetensors")
    status, out, _ = call("verify", path)
    assert status == 1 and "expected" in out and "0 wrong" not in out
    got = json.loads(call("verify", path, "--json")[1])
    assert got["wrong"] > 0 and any(c["got"] != c["expected"] for c in got["counterexamples"])


def test_explain(call):
    out = call("explain", "addition:digits=2", "45+78")[1]
    assert "comes 1" in out and "leads 0 by" in out
    got = json.loads(call("explain", "addition:digits=2", "45+78", "--json")[1])
    assert got["winner"] == "1"
    assert sum(s for _, s in got["shares"]) == pytest.approx(got["margin"], rel=1e-6)


def test_explain_a_step_within_the_answer(call):
    """127+458=5: the ones are written, and the next token needs their carry."""
    status, out, err = call("explain", "addition:order=ones", "127+458=5")
    assert (status, err) == (0, "") and out.startswith("After 1 2 7 + 4 5 8 = 5 comes 8:")


@pytest.mark.parametrize("ref,text,rest", [
    ("addition:order=ones", "127+458=5", "850"), ("addition", "27 + 458 = 04", "85"),
    ("addition:padding=none", "27+458=4", "85"), ("adder-least", "27+458=58", "400000000"),
    ("reverse", "12345=54", "321"), ("multiplication", "12*34=0", "408"),
    ("sort", "5 3 1 0 1", "3 5"), ("sort:low=-3,vocab=9", "2,-3;-3".replace(";", " ; "), "2"),
    ("lang/reverse", "3 1 2 | 2", "1 3"),
])  # fmt: skip
def test_a_text_may_go_on_into_the_answer(call, ref, text, rest):
    assert call("run", ref, text) == (0, rest + "\n", "")


@pytest.mark.parametrize("ref,text,part", [
    ("addition", "127+458=0585", "0585"),
    ("addition:order=ones", "1+2=3<EOS>", "3<EOS>"),
    ("reverse", "12345=x", "'x'"),
    ("sort", "5 3 0 1", "0 may be only"), ("sort", "5 3 1 0 1 3 5", "1 3 5"),
])  # fmt: skip
def test_what_is_no_start_of_an_answer_is_refused(call, ref, text, part):
    status, out, err = call("run", ref, text)
    assert (status, out) == (2, "") and part in err and err.count("\n") == 1


def test_what_is_said_backwards_is_told_so(call):
    assert call("run", "adder-least", "4+8") == (0, "21000000000\n", "")
    by_name = {p["name"]: p["help"] for p in json.loads(call("list", "--json")[1])["programs"]}
    assert "backwards: `4+8` gives `21000000000`" in by_name["adder-least"]
    assert "backwards" in by_name["adder-hinge"]


def test_list(call):
    assert "addition" in call("list")[1] and "digits=" in call("list", "programs")[1]
    names = [p["name"] for p in json.loads(call("list", "programs", "--json")[1])["programs"]]
    assert {"hello-world", "lookup", "search", "sort", "addition", "multiplication"} <= set(names)
    assert "addition" in call("list", "tasks")[1]
    options = call("list")[1].partition("\naddition ")[2].splitlines()[1:5]
    assert "digits=3" in options[0] and "order=most" in options[2]
    assert len({len(re.match(" +.*?  +", line)[0]) for line in options}) == 1  # they are aligned
    assert "blocks.0.attn.hook_pattern" in call("list", "hooks", "addition")[1].split()
    assert "booklet-2" in call("list", "claims")[1]
    for what in ("bridges", "views", "trained"):
        assert [line.split("  ")[0] for line in call("list", what)[1].splitlines()] == gf.list(what)
        assert json.loads(call("list", what, "--json")[1]) == {what: gf.list(what)}
    assert call("list", "hooks", "addition")[1].split() == gf.list("hooks", "addition")
    assert call("list", "hooks")[2].startswith("error: list hooks — expected a model")


def test_recipes_and_trained_models_have_a_sentence_each(call):
    for what in ("recipes", "trained"):
        lines = [line for line in call("list", what)[1].splitlines() if not line.startswith(" ")]
        assert len(lines) == len(gf.list(what))
        for line in lines:
            assert re.fullmatch(r"\S+  [A-Z].{20,}\.", line), line


def test_the_guide_has_every_recipe():
    guide = (Path(__file__).parents[1] / "docs/guide/02-train.md").read_text()
    table = guide.partition("| recipe | of | |\n")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)`", table, re.M)) == gf.list("recipes")


def test_completion(call, monkeypatch):
    assert "--install-completion" in call("--help")[1]
    monkeypatch.setenv("_GLASSFORMER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "glassformer re")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert call()[1].split() == ["report"]


def test_claims(call, monkeypatch):
    status, out, _ = call("claims", "booklet-2")
    assert status == 0 and "0 differ" in out
    from dataclasses import replace

    from glassformer.published_claims import LEDGER, ledger

    name = next(n for n in ledger() if n.startswith("booklet-2"))
    monkeypatch.setitem(LEDGER, name, replace(LEDGER[name], records=-1))
    status, out, _ = call("claims", name, "--json")
    got = json.loads(out)
    assert status == 1 and got["differ"] == 1 and got["claims"][0]["matches"] is False


@pytest.mark.parametrize("to", ["safetensors", "taotp"])
def test_export_and_run_again(call, tmp_path, to):
    path = tmp_path / f"adder.{to}"
    assert call("export", "addition:digits=2", "--to", to, "--out", path)[0] == 0
    assert call("run", path, "45+78") == (0, "123\n", "")
    assert "0 wrong of 10,000" in call("verify", path)[1]
    mine, theirs = (
        json.loads(call("count", ref, "--json")[1]) for ref in (path, "addition:digits=2")
    )
    assert mine["total"] == theirs["total"]


# ── bad input: one clear line, status 2, nothing on stdout ─────────────────────────────────────
BAD = [
    (["run", "additoin"], "additoin — no such program; did you mean addition"),
    (["run", "addition:digit=3", "1+2"], "did you mean digits?"),
    (["run", "addition:digits=x", "1+2"], "digits must be a whole number from 1 to 12, got 'x'"),
    (["run", "addition:digits=99", "1+2"], "digits must be a whole number from 1 to 12, got 99"),
    (["run", "addition:variant=best", "1+2"], "variant must be one of"),
    (["run", "addition:digits=2", "1+x"], "x"),
    (["run", "addition:digits=2", "100+1"], "100"),
    (["run", "min:vocab=10", "3 12"], "12"),
    (["run", "min:vocab=10", " ".join(["3"] * 500)], "n_ctx=10,"),
    (["run", "repeat-last:vocab=3", ""], "at least one token"),
    (["run", "no/such/file.safetensors"], "cannot be read"),
    (["run", "no/such/file.taotp"], "no/such/file.taotp"),
    (["run", "some.bin"], "expected a program, or a file that ends in"),
    (["verify", "addition:digits=2", "--task", "subtraction"], "no such task"),
    (["verify", "addition:digits=2", "--task", "min"], "vocabulary"),
    (["verify", "addition:digits=2", "--sample", "0"], "verify — sample"),
    (["count"], "REF"),
    (["claims", "nobody-said"], "no claim of that name"),
    (["list", "things"], "expected one of programs, tasks, parametrizations"),
    (["list", "task"], "list 'task' — no such list; did you mean tasks?"),
    (["list", "recipe"], "did you mean recipes?"),
    (["claims", "bok"], "no claim of that name; did you mean book"),
    (["export", "addition", "--to", "png", "--out", "x.png"], "expected one of safetensors, taotp"),
    (["export", "addition", "--to", "gpt", "--out", "x"], "did you mean gpt2?"),
    (["export", "addition", "--to", "taotp", "--out", "/no/such/folder/x.taotp"],
    "cannot be written"),
    (["run", "disagrees.taotp", "a"], "max:vocab=3"),
    (["verify", "min:vocab=3,block=4", "--task", "min:vocab=3,length=9"], "n_ctx"),
    (["nonsense"], "nonsense"),
    (["run", "addition", "1+2", "--nonsense"], "nonsense"),
]  # fmt: skip


@pytest.mark.parametrize("words,part", BAD)
def test_bad_input(call, words, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = 'task: "max:vocab=3" tokens: ab tok_emb: [[1 2] [3 4]] block_size: 4'
    Path("disagrees.taotp").write_text(text)
    status, out, err = call(*words)
    assert (
        status == 2
        and out == ""
        and part in err
        and err.startswith("error: ")
        and err.count("\n") == 1
    )


def damaged(tmp_path):
    whole = save(load("repeat-last:vocab=3"), tmp_path / "whole.safetensors").read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 4
    save_file({"a": np.zeros(3)}, tmp_path / "foreign.safetensors")
    deep, huge = "[" * 10_000 + "]" * 10_000, "1 " * 5_000_000
    shape = '{"tok_emb": [[1, 2, 3], [1, 2]], "pos_emb": [[0, 0, 0]], "layers": []}'
    header = b'{"__metadata__":null,"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}'
    files = {
        "null.safetensors": len(header).to_bytes(8, "little") + header + bytes(8),
        "truncated.safetensors": whole[: len(whole) // 2], "flipped.safetensors": bytes(flipped),
        "text.safetensors": b"hello", "shape.taotp": shape.encode(),
        "nan.taotp": b'{"tok_emb": [[1, nan, 3]], "pos_emb": [[0, 0, 0]]}',
        "huge.taotp": f'{{"tok_emb": [[{huge}]]}}'.encode(),
        "deep.taotp": f'{{"tok_emb": {deep}}}'.encode(),
    }  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [*files, "foreign.safetensors"]


def test_bad_files(call, tmp_path):
    for name in damaged(tmp_path):
        for command in ("run", "count"):
            status, out, err = call(command, tmp_path / name)
            assert (
                status == 2 and out == "" and err.count("\n") == 1 and err.startswith("error: ")
            ), name
            assert "Traceback" not in err and name in err, (name, err)
            assert len(err) < 1_000, name


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "reverse", "--out"],
        ["prove", "addition:digits=2", "--method", "certificate", "--out"],
        ["ground-truth", "reverse", "--out"],
        ["obfuscate", "reverse", "--out", "d.safetensors", "--key"],
    ],
)
def test_json_is_not_written_over_a_model(words, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("m.safetensors", "m.taotp", "m.glass", "m.py"):
        Path(name).write_text("mine")
        status, _, err = call(*words, name)
        assert status == 2 and "FILE.json" in err, (words, err)
        assert Path(name).read_text() == "mine" and not Path("d.safetensors").exists()


@pytest.mark.parametrize("to", ["taotp", "safetensors", "torch"])
def test_a_source_with_options_is_not_written_over(to, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "tokens = [0, 1]; length = 4; emit = token"
    Path("a.glass").write_text(text)
    status, _, err = call("export", "a.glass:dtype=float32", "--to", to, "--out", "a.glass")
    assert status == 2 and "a.glass" in err
    assert Path("a.glass").read_text() == text

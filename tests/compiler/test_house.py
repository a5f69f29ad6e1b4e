"""Compiled models in all commands: run, verify, prove, save, explain, export."""

import json
from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from cases import drawn
from compiler.compiled import changed
from glassformer import GlassformerError
from glassformer.compiler import interpreter
from glassformer.compiler.certify import Unproved
from glassformer.compiler.driver import recheck
from glassformer.interop import export_checked
from helpers import raises

TINY = ["lang/reverse:vocab=2,length=2", "lang/sort:vocab=2,length=2", "lang/dyck-1:length=6",
        "lang/most-frequent:vocab=3,length=4"]  # fmt: skip
VOTE = """
tokens = [*"ab"]
length = option(5, 1, 20)
often = count(token == here.token)
emit = best(token, most=(often, position), default="a")
"""


@pytest.fixture
def vote(tmp_path):
    file = tmp_path / "vote.glass"
    file.write_text(VOTE)
    return str(file)


# ── refs ───────────────────────────────────────────────────────────────────────────────────────
def test_the_ref_has_all_options_and_the_task_those_of_the_source(vote):
    model = gf.load(f"{vote}:length=3,dtype=float32,target=gpt2")
    assert model.provenance["ref"] == f"{vote}:length=3,dtype=float32,target=gpt2"
    assert model.task == f"{vote}:length=3" == gf.load_task(model).ref
    assert model.dtype == "float32" and model.config.n_ctx == 4
    assert model.config.n_heads * model.config.d_head == model.config.d_model
    assert gf.load_task(f"{vote}:length=3,dtype=float32").ref == model.task


@pytest.mark.parametrize("ref,code,mentions", [
    ("lang/srot", "not_found", ["lang/srot", "lang/sort"]),
    ("lang/sort:vocb=3", "bad_source", ["vocb", "vocab"]),
    ("lang/sort:vocab=x", "bad_source", ["vocab", "'x'"]),
    ("lang/sort:dtype=float16", "bad_argument", ["lang/sort:dtype=float16", "dtype"]),
    ("lang/sort:target=gpt3", "bad_argument", ["lang/sort:target=gpt3", "target"]),
    ("sort.glass", "not_found", ["sort.glass", "lang/sort"]),
    ("nowhere.glass", "not_found", ["nowhere.glass"]),
])  # fmt: skip
def test_wrong_refs(ref, code, mentions):
    with raises(code, *mentions):
        gf.load(ref)


def test_a_file_is_limited_and_not_executed(tmp_path):
    huge, evil = tmp_path / "huge.glass", tmp_path / "evil.glass"
    huge.write_text("#" * 10_000_000)
    with raises("bad_argument", huge, "10,000,000", "400,000"):
        gf.load(huge)
    evil.write_text(f"tokens = [*'ab']\nlength = 2\nemit = open({str(tmp_path / 'x')!r}, 'w')\n")
    with raises("bad_source", "evil.glass:3"):
        gf.load(evil)
    assert not (tmp_path / "x").exists()


# ── verified and proved ────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ref", TINY)
@pytest.mark.parametrize("how", ["dtype=float64", "dtype=float32", "dtype=float32,target=gpt2"])
@pytest.mark.some(4)
def test_compiled_models_are_verified_and_proved(ref, how):
    model = gf.load(f"{ref},{how}")
    verdict = gf.verify(model)
    assert verdict.holds and verdict.exhaustive and verdict.checked > 50
    proof = gf.prove(model)
    assert proof.holds and proof.method == "compiled" and proof.dtype == model.dtype
    assert 0 < proof.margin <= verdict.worst_margin
    assert f"for every text of up to {gf.load_task(model).program.length} tokens" in proof.reason
    assert "tightest at " in proof.reason and proof.cases > 0


def test_a_checkpoint_has_its_program(tmp_path, vote):
    model = gf.load(vote)
    file = tmp_path / "vote.safetensors"
    gf.save(model, file)
    (tmp_path / "vote.glass").write_text(VOTE.replace("most=", "least="))  # the file changes later
    back = gf.load(file)
    assert gf.load_task(back).program.source == VOTE
    assert gf.run(back, "a b b a b").output == "b" and gf.verify(back).holds
    assert gf.prove(back).holds and gf.prove(back).margin == gf.prove(model).margin


@pytest.mark.parametrize("task", [
    "lang/sort:vocab=3,length=2", "lang/reverse:vocab=2,length=2", "lang/nowhere", "reverse",
])  # fmt: skip
@pytest.mark.some(3)
def test_the_name_of_another_program_has_no_effect(task, call, tmp_path):
    model = gf.load("lang/reverse:vocab=3,length=2")
    assert gf.load_task(model).ref == model.task == "lang/reverse:vocab=3,length=2"
    other = replace(model, task=task, provenance={**model.provenance, "ref": task})
    file = str(tmp_path / "x.safetensors")
    gf.save(other, file)
    label = f"the embedded source (named {task!r})"
    for m in (other, gf.load(file)):
        assert gf.load_task(m).ref == label
        assert gf.prove(m).task == gf.verify(m).task == gf.load_task(m).ref
        assert gf.load_task(m).program.source == model.provenance["compiled"]["source"]
        assert gf.prove(m).holds and gf.verify(m).holds
        assert gf.run(m, "1 2 |").output == gf.run(model, "1 2 |").output
        assert str(gf.explain(m, "1 2 |")).count("as the interpreter says") > 3
    assert f"on {label}: proved" in call("prove", file)[1]
    assert f"on {label}: " in call("verify", file)[1]


def test_a_damaged_model_is_not_proved():
    model = gf.load("lang/reverse:vocab=3,length=2")
    wrong = replace(model, weights={**model.weights, "unembed.W_U": -model.weights["unembed.W_U"]})
    proof = gf.prove(wrong)
    assert proof.result == "refuted" and proof.counterexample["input"].startswith("<bos>")
    for entry in ({"values": [[0, 0, 0, 7]]}, {"format": 99}):  # without a valid declaration
        with pytest.raises(GlassformerError):
            recheck(changed(wrong, entry=entry))
        assert gf.prove(changed(wrong, entry=entry)).result == "refuted"
    for name in ("ln_final.b", "blocks.0.ln1.b"):
        shifted = {**model.weights, name: np.full(model.config.d_model, 1.0)}
        with pytest.raises(Unproved):
            recheck(replace(model, weights=shifted))
    noisy = model.weights["blocks.1.attn.W_V"] + 1e-3
    proof = gf.prove(replace(model, weights={**model.weights, "blocks.1.attn.W_V": noisy}))
    assert proof.result == "unknown" and proof.margin is None and "emit" in proof.reason


def test_another_task_is_not_proved_by_the_certificate():
    model = gf.load("lang/sort:vocab=2,length=2")
    other = gf.prove(model, task="lang/reverse:vocab=2,length=2")  # the same tokens
    assert other.method == "enumeration" and other.result == "refuted"
    assert gf.prove(model, method="enumeration").method == "enumeration"


def test_compile_in_python(vote):
    compiled = gf.compile(VOTE, options={"length": 3}, dtype="float32")
    assert compiled.program.length == 3 and compiled.model.dtype == "float32"
    assert gf.run(compiled.model, "a b b").output == "b" and gf.prove(compiled.model).holds
    assert gf.verify(compiled.model).checked == 2 + 4 + 8
    assert gf.compile(vote).program.length == 5
    assert gf.compile("lang/dyck-1:length=3").program.length == 3
    with raises("bad_source", "source:1:10", "`foo`"):
        gf.compile("tokens = foo(1)")
    assert {"lang/sort", "lang/dyck-1"} <= set(gf.list("lang"))


def test_models_of_one_program_are_compared():
    a, b = gf.load("lang/dyck-1:length=4"), gf.load("lang/dyck-1:length=4,dtype=float32")
    assert gf.compare(a, b).differ == 0
    with raises("bad_argument"):
        gf.compare(a, gf.load("lang/dyck-1:length=5"))


# ── explain ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ref", [
    "lang/reverse", "lang/sort", "lang/dyck-1", "lang/most-frequent",
    "lang/split-left:dtype=float32",  # has a copy of the position
])  # fmt: skip
def test_every_slot_agrees_with_the_interpreter(ref):
    model = gf.load(ref)
    for text in gf.load_task(model).example_inputs:
        story = gf.explain(model, text)
        assert story.values[-1].name == "emit" and story.values[0].place == "embed"
        assert all(v.holds == v.means and v.off < 0.1 for v in story.values), story
        assert "as the interpreter says" in str(story) and "NOT" not in str(story)


def test_a_wrong_slot_is_shown():
    model = gf.load("lang/most-frequent")
    silent = {**model.weights, "blocks.0.mlp.W_out": 0 * model.weights["blocks.0.mlp.W_out"]}
    story = gf.explain(replace(model, weights=silent), "3 1 3 3")
    (often,) = [v for v in story.values if v.name == "often"]
    assert often.holds != often.means == "3" and "often = " in str(story) and "NOT 3" in str(story)
    assert gf.explain(gf.load("reverse"), "12345").values == []


# ── the command line ───────────────────────────────────────────────────────────────────────────
def test_compile(call, vote, tmp_path):
    file = tmp_path / "vote.safetensors"
    status, out, _ = call("compile", f"{vote}:length=4", "--dtype", "float32", "--out", str(file))
    assert status == 0 and "proved in float32 for every text of up to 4 tokens" in out
    assert "slack" in out and " parameters" in out and f"wrote {file}" in out
    assert "\n  2 layers, " in out and "\n  1 layer, " in call("compile", "lang/length")[1]
    status, out, _ = call("compile", vote, "--target", "gpt2", "--json")
    result = json.loads(out)
    assert status == 0 and result["ref"] == f"{vote}:target=gpt2" and result["margin"] > 0
    assert result["heads"] * result["head_width"] == result["width"]
    status, out, _ = call("prove", str(file), "--json")
    assert status == 0 and json.loads(out)["method"] == "compiled"


def test_each_error_of_a_source_is_one_line(call, tmp_path):
    file = tmp_path / "bad.glass"
    file.write_text("tokens = [*'ab']\nlength = 5\nx = foo(token)\nemit = bar\n")
    for words in (["compile"], ["run"], ["prove"], ["verify"], ["explain"], ["count"]):
        more = ["a b"] if words[0] in ("run", "explain") else []
        status, out, err = call(*words, str(file), *more)
        lines = err.strip().split("\n")
        assert status == 2 and not out and len(lines) == 2, words
        assert "bad.glass:3:5 — " in lines[0] and "bad.glass:4:8 — " in lines[1]
        assert all(line.startswith("error: ") for line in lines)
    assert call("compile", "sort")[0] == 2


@pytest.mark.parametrize("words,mention", [
    (["prove", "lang/dyck-1", "--check", "x.json"], "check"), (["run", "lang/dyck-1", "( x"], "x"),
    (["run", "lang/dyck-1"], "1 to 10 tokens"), (["list", "language"], "lang"),
])  # fmt: skip
def test_wrong_commands(call, words, mention):
    status, _, err = call(*words)
    assert status == 2 and mention in err and len(err.strip().split("\n")) == 1


def test_independent_is_refused(call):
    pytest.importorskip("flint")
    status, _, err = call("prove", "lang/dyck-1", "--independent-check")
    assert status == 2 and "independent" in err


def test_list_lang(call):
    entries = json.loads(call("list", "lang", "--json")[1])["lang"]
    assert len(entries) > 150 and all(entry["help"] for entry in entries)
    assert "lang/reverse  The list backwards" in call("list", "lang")[1]


@pytest.mark.parametrize("words", [
    ["count", "lang/reverse:length=3"],
    ["run", "lang/reverse:length=3", "1 2 |", "--trace"],
    ["explain", "lang/reverse:length=3", "1 2 |"],
    ["verify", "lang/reverse:vocab=2,length=2"],
    ["ground-truth", "lang/reverse:length=3"],
    ["compare", "lang/reverse:length=3", "lang/reverse:length=3,dtype=float32", "--sample", "50"],
])  # fmt: skip
def test_commands(call, words):
    assert call(*words)[0] == 0


# ── GPT-2 ──────────────────────────────────────────────────────────────────────────────────────
def generated(folder, task, prompts):
    """Return what `generate` of transformers adds to each prompt, in batches of equal length."""
    torch, lib = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from glassformer.interop.gpt2 import silence_transformers

    with silence_transformers():
        net = lib.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    out = {}
    for length in sorted({len(p) for p in prompts}):
        batch = torch.tensor([p for p in prompts if len(p) == length])
        with silence_transformers():
            whole = net.generate(
                batch,
                attention_mask=torch.ones_like(batch),
                max_new_tokens=task.steps([0] * length),
            )
        out |= {tuple(w[:length]): w[length:] for w in whole.tolist()}
    return out


def agrees(ref, folder, n):
    """Export a source, prove the folder, and compare `generate` with the interpreter on n texts."""
    model = gf.load(f"{ref}{',' if ':' in ref else ':'}target=gpt2,dtype=float32")
    export_checked(model, "gpt2", folder)
    back = gf.load(folder)
    proof = gf.prove(back)
    assert proof.holds and proof.method == "compiled" and proof.dtype == "float32", proof
    task = gf.load_task(back)
    assert task.ref == ref and task.program.source == gf.load_task(ref).program.source
    rows = np.concatenate([task.edges()[:10], task.sample(n, np.random.default_rng(3))])
    texts = [row[1 : row[0] + 2] for row in rows.tolist()]
    outputs = generated(folder, task, [[0, *(t + 1 for t in text)] for text in texts])
    for text in texts:
        expected = [t + 1 for t in interpreter.run(task.program, text)]
        output = outputs[(0, *(t + 1 for t in text))]
        assert output[: len(expected)] == expected, (ref, text)
        assert set(output[len(expected) :]) <= {task.stop}, "only padding after the end"


@pytest.mark.slow
def test_transformers_agrees_with_the_interpreter(tmp_path):
    pytest.importorskip("transformers")
    agrees("lang/sort:vocab=4,length=3", tmp_path / "gpt2", 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "reverse", "sort", "sort-unique", "histogram", "length", "most-frequent",
    "second-most-frequent", "dyck-1", "dyck-2", "induction",
])  # fmt: skip
def test_transformers_agrees_on_ten_programs(name, tmp_path):
    agrees(f"lang/{name}", tmp_path / "gpt2", drawn(1_000))


BOTH = """
tokens = [*"abc"]
length = 4
some_a = any(token == "a")
some_b = any(token == "b")
emit = "a" if some_a and some_b else "b"
"""


@pytest.mark.parametrize("target", ["", "gpt2"])
@pytest.mark.some(2)
def test_a_stream_with_copies_is_not_proved(target, tmp_path):
    """GPT-2's head count does not divide this stream, so it is copied, without declaration."""
    pytest.importorskip("transformers")
    model = gf.compile(BOTH, target=target).model
    done = export_checked(model, "gpt2", tmp_path / "x")
    proof = gf.prove(tmp_path / "x")
    assert proof.result == ("proved" if target else "unknown")
    assert any("compile with target=gpt2" in note for note in done.notes) == (not target)


# ── first steps of a user ──────────────────────────────────────────────────────────────────────
FOLLOWS = """# follows.glass: the token after the last occurrence of this one
tokens = [*"abc"]
length = 5
before = only(token, position == here.position - 1)
emit = latest(token, before == here.token, default="a")
"""


@pytest.fixture
def follows(tmp_path):
    file = tmp_path / "follows.glass"
    file.write_text(FOLLOWS)
    return str(file)


def test_a_text_of_several_lines_is_a_source():
    compiled = gf.compile(FOLLOWS)
    assert gf.run(compiled, "a b c a").output == "b" and str(compiled).startswith(
        "source: 2 layers, 1 head"
    )
    assert gf.explain(compiled, "a b c a").winner == "b" and gf.count(compiled).total > 0
    with raises("bad_source", "source:3:8", "`tokn`"):
        gf.compile("# x.glass: y\ntokens = [1]; length = 1\nemit = tokn")


def test_a_compiled_model_adds_bos_to_texts():
    for model in (gf.compile(FOLLOWS).model, gf.compiler.compile(FOLLOWS).model):
        logits = model("a b c a")
        assert (logits == model([0, 1, 2, 3, 1])).all() and (logits == model("<bos> a b c a")).all()
        assert model.vocabulary[int(logits[-1].argmax())] == "b"
        assert gf.run(model, "a b c a").tokens == [0, 1, 2, 3, 1, 2]


def test_generation_stops_at_the_proved_length(call, follows):
    result = gf.run(follows, "a b", steps=10)
    assert len(result.tokens) == 7 and result.stopped
    status, out, err = call("run", follows, "a b", "--steps", "10")
    assert (status, out) == (0, result.output + "\n")
    assert "5 tokens" in err
    for steps in (None, 1, 4):
        assert not gf.run(follows, "a b", steps=steps).stopped
    status, out, err = call("run", "lang/sort:vocab=2,length=2", "1 1 1 1", "--json")
    assert json.loads(out)["output"] and "5 tok" in err
    assert call("run", "lang/sort:vocab=2,length=2", "1 1 |")[2] == ""


def test_values_are_shown_without_compiling(call, tmp_path, monkeypatch):
    file = tmp_path / "s.glass"
    file.write_text(FOLLOWS)
    monkeypatch.setattr("glassformer.compiler.driver.compile", None)
    status, out, err = call("run", file, "a b c a", "--interpret")
    assert (status, err) == (0, "") and [line.split() for line in out.splitlines()] == [
        ["token", *"abca"], ["here.position", "-", "1", "-1", "0", "1", "2"],
        ["position", *"0123"], ["before", *"–abc"], ["emit", *"aaab"], ["b"],
    ]  # fmt: skip
    got = json.loads(call("run", file, "a b", "a", "--interpret", "--json")[1])["runs"]
    assert got[0]["values"]["before"] == ["–", "a"] and got[1]["output"] == "a"
    status, out, err = call("run", "addition:digits=1", "1+2", "--interpret")
    assert status == 2 and "addition" in err


def test_a_source_is_shown_with_its_options(call, vote):
    status, out, _ = call("list", vote)
    assert status == 0 and out.startswith(VOTE.rstrip()) and "length=5  from 1 to 20" in out
    for words in (("lang/sort",), ("lang", "sort"), ("lang", "lang/sort")):
        got = json.loads(call("list", *words, "--json")[1])
        assert got["options"]["vocab"] == {"default": 10, "least": 2, "most": 100}
        assert got["name"] == "lang/sort" and "emit = nth(" in got["source"]
    assert call("list", "lang", "srot")[0] == 2


def test_inputs_count_texts(call, follows):
    task = gf.load_task(follows)
    assert task.inputs == sum(3**n for n in range(1, 6)) == 363 and "363 inputs" in repr(task)
    assert "0 wrong of 363, every input of 363; worst" in call("verify", follows)[1]


def test_positions_are_counted_as_in_the_source(call, follows):
    story = str(gf.explain(follows, "a b c a"))
    assert "before: attends to c at 2" in story and "position = 3, as" in story
    assert "attends to <bos> (100%)" in str(gf.explain(follows, "a"))
    assert "before: c at 2 (100%)" in call("run", follows, "a b c a", "--trace")[1]


def test_tokens_are_separated_by_spaces(call, follows):
    assert "a b c a" in call("run", follows, "abca")[2]
    assert "a b x a" not in call("run", follows, "abxa")[2]

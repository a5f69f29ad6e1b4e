"""The name of an embedded source is printed alone only if it resolves to the same text, so that
`--task NAME` gives the same result.
"""

import re
from dataclasses import replace

import pytest

import glassformer as gf
from glassformer import resolve
from glassformer.compiler import library, recheck
from glassformer.compiler.task import task_name
from glassformer.utils.errors import ascii_name
from glassformer.verification import Verdict
from helpers import raises

PARITY = library.source_text("lang/parity")
ZERO = 'length = option(10, 1, 100)\ntokens = [0, 1]\nemit = 0\n'  # fmt: skip
LABEL = "the embedded source (named {!a})"
CLAIMS = [
    "parity.glass", "lang/parity", "parity", "addition:digits=3", "additi\u043en", "parity\u200b",
    "lang/parity\u2060", "\u202eparity", "a'): proved (", "no:options", "parity.glass:length=10",
]  # fmt: skip


@pytest.fixture(scope="module")
def zero():
    return gf.compile(ZERO).model


def forged(model, claim, task=None):
    """Return a model with another name, wherever a checkpoint stores one."""
    entry = {**model.provenance["compiled"], "name": claim}
    provenance = {**model.provenance, "ref": claim, "compiled": entry}
    return replace(model, task=claim if task is None else task, provenance=provenance)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parity.glass").write_text(PARITY)
    return tmp_path


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("empty", [False, True])
def test_a_forged_name_is_shown_as_a_claim(zero, claim, empty, folder, call):
    model = forged(zero, claim, "" if empty else None)
    gf.save(model, "x.safetensors")
    expected = LABEL.format(claim)
    assert gf.load_task(model).ref == task_name(model) == recheck(model).program.name == expected
    assert gf.prove(model).task == gf.verify(model).task == expected
    assert gf.prove(model, accuracy=True).task == gf.prove(model, equal_to=model).task == expected
    assert gf.inspect(model, only="stopping").to_json()["task"] == expected
    for words in (["prove"], ["verify"], ["prove", "--accuracy"]):
        code, out, _ = call(*words, "x.safetensors")
        assert code == 0 and out.startswith(f"x.safetensors on {expected}: "), words
    for shown in (str(recheck(model)), gf.prove(model)._repr_html_(), repr(model), str(model)):
        assert shown.isascii() or not set(claim) & {*"\u043e\u200b\u2060\u202e"} & {*shown}


def test_the_name_is_shown_alone_if_its_file_has_the_same_text(folder):
    model = gf.load("parity.glass:length=4")
    assert gf.load_task(model).ref == "parity.glass:length=4"
    longer = replace(model, task="parity.glass:length=5")
    assert gf.load_task(longer).ref == LABEL.format("parity.glass:length=5")
    assert gf.load_task(replace(model, task="lang/parity:length=4")).ref == "lang/parity:length=4"
    (folder / "parity.glass").write_text(PARITY + "\n")
    assert gf.load_task(model).ref == LABEL.format("parity.glass:length=4")
    (folder / "parity.glass").unlink()
    assert gf.load_task(model).ref == LABEL.format("parity.glass:length=4")
    assert gf.load_task(replace(model, task="lang/parity:length=4")).ref == "lang/parity:length=4"


def test_a_task_option_overrides_the_embedded_source(zero, folder, call):
    gf.save(forged(zero, "parity.glass"), "x.safetensors")
    for task in ("parity.glass", "lang/parity"):
        model = resolve.with_task(gf.load("x.safetensors"), task)
        assert resolve.task_if_known(model).ref == task and not gf.verify(model).holds
        text = gf.report("x.safetensors", task=task).data["models"][0]["verdict"]["text"]
        assert text.startswith("1,023 wrong of 2,046") and f"on {task};" in text
    same = resolve.with_task(gf.load("lang/parity:length=4"), "lang/parity:length=4")
    assert "compiled" in same.provenance


def test_a_verdict_on_an_embedded_source_can_be_rechecked(zero, folder, call):
    gf.save(forged(zero, "parity.glass"), "x.safetensors")
    assert call("verify", "x.safetensors", "--out", "v.json")[0] == 0
    code, out, _ = call("verify", "x.safetensors", "--recheck", "v.json")
    assert code == 0 and out.startswith(f"x.safetensors on {LABEL.format('parity.glass')}: 0 wrong")
    assert gf.recheck("x.safetensors", "v.json").confirmed
    assert call("verify", "x.safetensors", "--recheck", "v.json", "--task", "parity.glass")[0] != 0
    saved = Verdict.read("v.json")
    replace(saved, task="parity.glass").save("false.json")  # a verdict that names the real file
    assert call("verify", "x.safetensors", "--recheck", "false.json")[0] == 1


def test_the_name_of_a_task_from_a_file_is_ascii(folder, call):
    name = "p\u0430rity.glass"  # a Cyrillic letter
    (folder / name).write_text(PARITY)
    model = gf.load("lang/parity:length=3")
    rest = {k: v for k, v in model.provenance.items() if k != "compiled"}
    plain = replace(model, task=name + ":length=3", provenance=rest | {"ref": name})
    gf.save(plain, "x.safetensors")
    assert "on p\\u0430rity.glass:length=3: 0 wrong" in call("verify", "x.safetensors")[1]
    typed = call("verify", "x.safetensors", "--task", f"{name}:length=3")[1]
    assert f"on {name}:length=3: 0 wrong" in typed
    assert plain.name == "p\\u0430rity.glass" and gf.verify(plain).holds


@pytest.mark.parametrize("name", ["additi\u043en", "p\u0430rity.glass", "min\u200b:vocab=3"])
def test_the_name_of_an_unknown_task_from_a_file_is_ascii(folder, call, name):
    gf.save(replace(gf.load("min"), task=name), "x.safetensors")
    gf.save(gf.load("min"), "min.safetensors")
    gf.verify("min").save("v.json")
    replace(Verdict.read("v.json"), task=name).save("false.json")
    head = name.partition(":")[0]
    for words in (["x.safetensors"], ["min.safetensors", "--recheck", "false.json"]):
        status, _, err = call("verify", *words)
        assert status == 2 and ascii_name(head) in err and head not in err
    with raises("not_found", head):
        gf.verify("min", name)  # as typed


def test_names_in_ascii():
    assert ascii_name("addition:digits=3") == "addition:digits=3"
    assert ascii_name("additi\u043en\u200b\x1b\n\ud800") == "additi\\u043en\\u200b\\x1b\\n\\ud800"


def test_a_builtin_name_does_not_help_tokens_of_another_task(zero):
    rest = {k: v for k, v in zero.provenance.items() if k != "compiled"}
    model = replace(zero, task="addition:digits=3", provenance=rest)
    for judge in (gf.prove, gf.verify):
        with raises("bad_argument"):
            judge(model)


REFS = [
    "addition:digits=2", "reverse:length=2,alphabet=3", "lang/parity:length=4",
    "max:vocab=3,block=3", "parity.glass:length=4",
]  # fmt: skip


@pytest.mark.parametrize("command", ["prove", "verify"])
def test_every_printed_name_of_a_task_gives_the_same_result_again(command, zero, folder, call):
    """For every line "M on X: …" with the name X alone, `--task X` prints the same line."""
    files = []
    for i, claim in enumerate([*CLAIMS, "lang/parity:length=4"]):
        gf.save(forged(zero, claim), f"{i}.safetensors")
        files.append(f"{i}.safetensors")
    honest = gf.load("lang/parity:length=4")
    gf.save(honest, "honest.safetensors")
    gf.save(replace(honest, task="parity.glass:length=4"), "renamed.safetensors")
    again = 0
    for ref in [*REFS, *files, "honest.safetensors", "renamed.safetensors"]:
        code, out, err = call(command, ref)
        match = re.match(r"(?s)(?P<ref>\S+) on (?P<task>.*?): (?=proved|refuted|unknown|\d)", out)
        assert match and match["ref"] == ref, (ref, out, err)
        if match["task"].startswith("the embedded source (named "):
            assert ref in files
            continue
        again_code, again_out, _ = call(command, ref, "--task", match["task"])
        seconds = re.compile(r"checker, [\d.]+ s")
        assert (again_code, seconds.sub("", again_out)) == (code, seconds.sub("", out))
        again += 1
    assert again == len(REFS) + 2

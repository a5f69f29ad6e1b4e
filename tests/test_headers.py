"""Invalid files: every field of every file format, replaced by invalid values.

A file is changed in one place, with and without a new checksum. The result must be a right answer,
or one line and status 2: no traceback, no control character, no gigabyte, no waiting.
"""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from glassformer import Config, GlassformerError, Model, Vocabulary, load, load_task, verify
from glassformer.circuits.obfuscation import obfuscate, read_key
from glassformer.core.checkpoint import digest, save
from glassformer.core.weight_shapes import required_shapes
from glassformer.verification.verifier import verify_events
from helpers import raises, resealed, sealed_header, sealed_state

HUGE = 10_000_000
VALUES: dict[str, Any] = {
    "null": None, "a number": 7, "a huge number": 10**30, "a fraction": 1.5, "nan": float("nan"),
    "true": True,
    "a list": [1, "x"], "an object": {"x": 1}, "nothing": "",
    "an escape": "\x1b]0;owned\x07\x1b[31mred",
    "deep": [[[[[[[[]]]]]]]], "long": 200_000 * "x",
}  # fmt: skip
EVERY = pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "every"]
)


def some(values: Any, every: bool, turn: int, of: int) -> list[Any]:
    """Return all values, or every `of`-th one, starting at `turn`."""
    return [v for i, v in enumerate(values) if every or (i + turn) % of == 0]


# ── changing one thing ─────────────────────────────────────────────────────────────────────────
def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all fields in a JSON value, and of the first element of each list."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from places(inside, (*path, name))
        yield (*path, "more")  # an unknown field
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Set the value at a path; return the whole."""
    if not path:
        return new
    at = value
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = new
    return value


def get(value: Any, path: tuple[Any, ...]) -> Any:
    """Return the value at a path, or a text that occurs nowhere."""
    for step in path:
        value = value.get(step, "nothing at all") if isinstance(value, dict) else value[step]
    return value


def one_line(answer: Any, statuses: tuple[int, ...] = (0, 1, 2)) -> Any:
    """Check that a command succeeded, or printed one line of error with status 2."""
    status, out, err = answer
    assert status in statuses and "defect" not in err and "Traceback" not in err, answer
    assert "\x1b" not in out + err and "\x07" not in out + err, "shown, not sent"
    if status == 2:
        assert err.startswith("error: ") and err.count("\n") == 1 and len(err) < 3_000, answer
    return answer


@contextmanager
def soon(seconds: float = 20.0) -> Iterator[None]:
    """Fail if the body takes longer than `seconds`."""

    def late(number: int, frame: Any) -> None:
        raise AssertionError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ── checkpoints ────────────────────────────────────────────────────────────────────────────────
REF = "addition:digits=1,variant=compact"
COMMANDS = {
    "run": ("run", "{}", "1+2"), "trace": ("run", "{}", "1+2", "--trace"), "json": ("run", "{}",
    "1+2", "--json"),
    "count": ("count", "{}"), "explain": ("explain", "{}", "1+2="), "hooks": ("list", "hooks",
    "{}"),
    "verify": ("verify", "{}"), "task": ("verify", "{}", "--task", "addition:digits=1"),
    "prove": ("prove", "{}"),
    "inspect": ("inspect", "{}", "--figures", "none", "--sample", "20"), "compare": ("compare",
    "{}", REF),
    "truth": ("ground-truth", "{}"), "disguise": ("obfuscate", "{}", "--out", "{}-c.safetensors",
        "--key",
    "{}-k.json"),
    "report": ("report", "{}", "--out", "{}.html"),
    "safetensors": ("export", "{}", "--to", "safetensors", "--out", "{}-e"),
    "taotp": ("export", "{}", "--to", "taotp", "--out", "{}.taotp"),
    "torch": ("export", "{}", "--to", "torch", "--out", "{}.py"),
    "start": ("train", "addition:digits=1", "--init-from", "{}", "--out", "{}-s.safetensors",
        "--set",
    "steps=1"),
    "teacher": ("train", "addition:digits=1", "--teacher", "{}", "--out", "{}-t.safetensors",
    "--set", "steps=1"),
}  # fmt: skip
BRIDGES = ("gpt2", "onnx", "transformer-lens", "adderboard")
FOREIGN = {to: ("export", "{}", "--to", to, "--out", "{}-" + to) for to in BRIDGES}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small checkpoint with a value in every field."""
    model = load(REF)
    model = replace(model, provenance={**model.provenance, "seed": 3, "recipe": {"lr": 0.1}})
    return save(model, tmp_path_factory.mktemp("whole") / "m.safetensors")


def changed(whole: Path, path: Path, place: tuple[Any, ...], value: Any, seal: bool) -> Path:
    """Copy a checkpoint with one value replaced, with a new digest and checksum if `seal`."""
    path.unlink(missing_ok=True)
    os.link(whole, path)
    return resealed(
        path,
        lambda sealed: _change(whole, sealed, place, value, seal),
        seal=seal and place != ("sha256",),
    )


@cache
def loaded(path: str) -> Model:
    return load(path)


def _change(whole: Path, sealed: Any, place: tuple[Any, ...], value: Any, seal: bool) -> None:
    put(sealed, place, value)
    if not seal or place[0] != "header":
        return
    try:
        header, model = sealed["header"], loaded(str(whole))
        config, tokens = Config(**header["config"]), Vocabulary.from_json(header["vocabulary"])
        sealed["model"] = digest(
            Model(config, model.weights, tokens, parametrization=header["parametrization"])
        )
    except (GlassformerError, TypeError, KeyError, AttributeError):
        pass  # not a model, so it has no digest


def test_every_field_of_a_checkpoint_is_looked_at(whole, tmp_path, call):
    """By `load`; some accepted files also by `run`, some refused ones by `count`."""
    path, taken, refused, expected = tmp_path / "c.safetensors", [], 0, load(REF)
    original = sealed_header(whole)
    for place in places(original):
        for name, value in VALUES.items():
            for seal in (True, False) if name in ("null", "long") else (True,):
                if get(original, place) == value:
                    continue
                changed(whole, path, place, value, seal)
                try:
                    model = load(str(path))
                except GlassformerError as e:
                    refused += 1
                    assert (
                        str(e).startswith(str(path)) and "\n" not in str(e) and len(str(e)) < 1_500
                    ), (place, name)
                    if refused % 100 == 0:
                        one_line(call("count", path), (2,))
                    continue
                assert seal, f"{place} may be {name} without a new seal"
                taken.append((place[1], name))
                assert place[1] in ("task", "labels", "provenance", "vocabulary", "config"), (
                    f"{place} may be {name}"
                )
                if (
                    place[1] != "config"
                ):  # a config's number may be another, and then the model is another
                    assert all(
                        np.array_equal(model.weights[n], w) for n, w in expected.weights.items()
                    )
                if len(taken) % 7 == 0:
                    one_line(call("run", path, "1+2"))
    assert refused > 500 and len(taken) < 150, (refused, len(taken))


def test_a_string_of_ten_megabytes_in_every_part(whole, tmp_path, call):
    for place in [
        ("header", "task"),
        ("header", "provenance", "ref"),
        ("header", "vocabulary", "tokens", 0),
        ("sha256",),
    ]:
        with soon():
            one_line(
                call("count", changed(whole, tmp_path / "c.safetensors", place, HUGE * "x", True)),
                (2,),
            )


def test_escapes_in_names_are_shown_and_not_sent(whole, tmp_path, call):
    """In all free texts of a header, through the commands that print them."""
    path = tmp_path / "c.safetensors"
    free = [
        ("header", "task"), ("header", "provenance", "ref"), ("header", "provenance", "maker"),
        ("header", "labels", "heads"), ("header", "labels", "slots"), ("header", "vocabulary",
        "tokens", 0),
    ]  # fmt: skip
    for place in free:
        value: Any = VALUES["an escape"]
        value = {"heads": {"0.0": value}, "slots": {value: [0, 1]}}.get(str(place[-1]), value)
        changed(whole, path, place, value, True)
        for name in ("run", "count", "explain", "verify", "truth"):
            one_line(call(*(str(w).format(path) for w in COMMANDS[name])))


@pytest.fixture(scope="module")
def changes(whole, tmp_path_factory):
    """All changes of the checkpoint: (path, name of the value, sealed, accepted by `load`)."""
    path, result = tmp_path_factory.mktemp("changed") / "c.safetensors", []
    for place in places(sealed_header(whole)):
        for what, value in VALUES.items():
            for seal in (True, False) if what == "null" else (True,):
                changed(whole, path, place, value, seal)
                try:
                    taken = bool(load(str(path)))
                except GlassformerError:
                    taken = False
                result.append((place, what, seal, taken))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", [*COMMANDS, *FOREIGN])
def test_every_field_through_every_command(whole, changes, tmp_path, call, name):
    """Accepted files go through all commands, refused ones through `count` and some others."""
    command, path = (COMMANDS | FOREIGN)[name], tmp_path / "c.safetensors"
    values = VALUES | ({"long": HUGE * "x"} if name == "count" else {})
    assert 30 < sum(taken for *_, taken in changes) < len(changes) / 3
    for i, (place, what, seal, taken) in enumerate(changes):
        if not (taken or name == "count" or i % 25 == 0):
            continue
        changed(whole, path, place, values[what], seal)
        with soon(120):
            status, *_ = one_line(call(*(w.format(path) for w in command)))
        assert taken or status == 2, (place, what)
        for left in tmp_path.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def test_degenerate_shapes_of_small_files(tmp_path, call):
    """A megabyte of arrays whose sizes allow no quadratic tables."""
    none = {"n_layers": 0}
    for sizes in (
        none | {"d_model": 60_000},
        none | {"n_ctx": 60_000},
        none | {"d_vocab": 60_000},
        {"n_ctx": 2**24, "positions": "rotary"},
        {"n_ctx": 2**24, "positions": "alibi"},
    ):
        config = Config(
            **({"d_vocab": 2, "n_ctx": 2, "d_model": 2, "n_heads": 1, "tied": True} | sizes)
        )
        weights = {n: np.ones(s) for n, s in required_shapes(config).items()}
        path = save(
            Model(config, weights, Vocabulary.numbers(config.d_vocab)), tmp_path / "d.safetensors"
        )
        with soon():
            for words in (
                ("count", path),
                ("run", path, "1", "--steps", 2),
                ("explain", path, "1"),
                ("ground-truth", path),
            ):
                one_line(call(*words))


# ── GPT-2 folders ──────────────────────────────────────────────────────────────────────────────
GPT2 = {
    "model_type": "gpt2", "vocab_size": 5, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 2,
    "n_inner": 8,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": True,
    "tie_word_embeddings": True, "architectures": ["GPT2LMHeadModel"],
    "glassformer": {"vocabulary": {"tokens": [*"abcde"], "sep": ""}, "task": "", "labels": {
        "slots": {"x": [0, 2]}, "heads": {"0.0": "looks"}, "neurons": {"0.1": "fires"}}},
}  # fmt: skip


@pytest.fixture
def gpt2(tmp_path):
    """A GPT-2 folder of one layer, as transformers writes it."""
    rng, at = np.random.default_rng(0), "transformer.h.0."
    shapes = {
        "transformer.wte.weight": (5, 4), "transformer.wpe.weight": (4, 4), at + "ln_1.weight": (4,
        ),
        at + "ln_1.bias": (4,), at + "ln_2.weight": (4,), at + "ln_2.bias": (4,),
        at + "attn.c_attn.weight": (4, 12),
        at + "attn.c_attn.bias": (12,), at + "attn.c_proj.weight": (4, 4),
        at + "attn.c_proj.bias": (4,),
        at + "mlp.c_fc.weight": (4, 8), at + "mlp.c_fc.bias": (8,), at + "mlp.c_proj.weight": (8,
        4),
        at + "mlp.c_proj.bias": (4,), "transformer.ln_f.weight": (4,), "transformer.ln_f.bias": (4,
        ),
    }  # fmt: skip
    folder = tmp_path / "gpt2"
    folder.mkdir()
    save_file(
        {n: rng.normal(size=s).astype("float32") for n, s in shapes.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps(GPT2))
    return folder


@EVERY
def test_every_field_of_a_gpt2_folder_is_looked_at(gpt2, call, every):
    assert call("run", gpt2, "abc", "--steps", 1)[0] == 0
    refused = 0
    for turn, place in enumerate(places(GPT2)):
        for value in some(VALUES.values(), every, turn, 6):
            (gpt2 / "config.json").write_text(
                json.dumps(put(json.loads(json.dumps(GPT2)), place, value))
            )
            refused += one_line(call("run", gpt2, "a", "--steps", 1), (0, 2))[0] == 2
    assert refused > (200 if every else 30)


@pytest.mark.parametrize("field, size", [
    ("n_layer", 10**9), ("n_layer", 9_999), ("n_embd", 10**9), ("vocab_size", 10**12),
    ("n_positions", 10**18),
    ("n_head", 0), ("n_inner", 10**9),
])  # fmt: skip
def test_sizes_of_a_gpt2_folder(gpt2, call, field, size):
    (gpt2 / "config.json").write_text(json.dumps(GPT2 | {field: size}))
    with soon():
        one_line(call("count", gpt2), (2,))


def test_a_gpt2_folder_with_nan(gpt2, call):
    from safetensors.numpy import load_file

    arrays = load_file(gpt2 / "model.safetensors")
    arrays["transformer.wpe.weight"][1, 2] = np.nan
    save_file(arrays, gpt2 / "model.safetensors")
    assert "wpe.weight has nan at [1, 2]" in one_line(call("count", gpt2), (2,))[2]


# ── verdicts, journals, keys, histories, recipes, sweeps, certificates ─────────────────────────
@EVERY
def test_every_field_of_a_verdict_is_looked_at(call, tmp_path, every):
    path, small = tmp_path / "v.json", "addition:digits=1"
    assert call("verify", small, "--sample", 20, "--out", path)[0] == 0
    whole = path.read_text()
    for turn, place in enumerate(places(json.loads(whole))):
        for value in some((None, -1, 10**30, [1], "\x1b[31m", True, 10**9), every, turn, 7):
            path.write_text(json.dumps(put(json.loads(whole), place, value)))
            one_line(call("verify", small, "--recheck", path))


@EVERY
def test_every_field_of_a_journal_is_looked_at(tmp_path, every):
    import hashlib

    path, model = tmp_path / "v.journal", load("addition:digits=1")
    task = load_task(model)
    events = verify_events(model, task, chunk=9, journal=path)
    for _ in range(3):
        next(events)
    events.close()
    whole, right = path.read_text(), verify(model, task)
    refused = 0
    for turn, place in enumerate(places(json.loads(whole))):
        values = (None, 3, 10**30, [7], {"x": 1}, "\x1b[31m", [[0, 10**17]], float("nan"))
        for value in some(values, every, turn, 3):
            o = put(json.loads(whole), place, value)
            if isinstance(o, dict) and place != ("sha256",):
                o.pop("sha256", None)
                o["sha256"] = hashlib.sha256(json.dumps(o, sort_keys=True).encode()).hexdigest()
            path.write_text(json.dumps(o))
            try:
                with soon():
                    assert (
                        verify(model, task, chunk=9, journal=path).looked_at == right.looked_at
                    ), place
            except GlassformerError as e:
                refused += 1
                assert "journal" in str(e) and str(e).isprintable() and len(str(e)) < 1_500
    assert refused > (100 if every else 30)


def test_a_journal_that_says_too_much_is_refused(tmp_path):
    """Valid checksum and types, but chunks that do not exist or rows that were not run."""
    import hashlib

    path, model = tmp_path / "v.journal", load("addition:digits=1")
    events = verify_events(model, load_task(model), chunk=9, journal=path)
    next(events), next(events)
    events.close()
    whole = path.read_text()
    for place, value in [
        (("done",), [[0, 99]]),
        (("done",), [[1, 2], [0, 1]]),
        (("done",), []),
        (("done", 0, 1), 1),
        (("found", "domain", "wrong"), 99),
        (("found", "domain", "looked_at"), 5),
        (("found",), {}),
        (("found", "domain", "worst", 2), [10, 1]),
        (("found", "domain", "classes"), {"x": [99, 0, 1.0]}),
    ]:
        o = put(json.loads(whole), place, value)
        o.pop("sha256")
        path.write_text(
            json.dumps(
                o | {"sha256": hashlib.sha256(json.dumps(o, sort_keys=True).encode()).hexdigest()}
            )
        )
        with raises("damaged_file", path):
            verify(model, load_task(model), chunk=9, journal=path)


def test_every_field_of_a_key_is_looked_at(tmp_path):
    path, model = tmp_path / "k.json", load(REF)
    _, key = obfuscate(model, 1, rotate=False)
    whole = json.dumps(key.to_json())
    path.write_text(whole)
    assert read_key(path) == key
    refused = 0
    for place in places(json.loads(whole)):
        for value in VALUES.values():
            path.write_text(json.dumps(put(json.loads(whole), place, value)))
            try:
                read_key(path)
            except GlassformerError as e:
                refused += 1
                assert str(e).startswith(str(path)) and len(str(e)) < 1_500
    assert refused > 200


def test_histories(tmp_path):
    from glassformer.report_page.snapshots import read_history

    path, row = (
        tmp_path / "h.jsonl",
        {"kind": "evaluation", "seed": 0, "step": 1, "loss": 1.0, "accuracy": 0.5},
    )
    path.write_text(json.dumps(row) + "\n")
    assert read_history(path)["steps"] == [1]
    for place in places(row):
        for value in (*VALUES.values(), float("inf"), 10**400):
            path.write_text(json.dumps(put(dict(row), place, value)) + "\n")
            try:
                json.dumps(read_history(path), allow_nan=False)
            except GlassformerError as e:
                assert str(e).startswith(str(path)) and len(str(e)) < 1_500
    for text in ("[" * 100_000, '{"step": 1}', "\0", "[]"):
        path.write_text(text)
        with pytest.raises(GlassformerError):
            read_history(path)


@pytest.mark.parametrize("kind", ["json", "toml"])
@EVERY
def test_every_field_of_a_recipe_is_looked_at(tmp_path, kind, every):
    from glassformer.training.recipes import RECIPES, read_recipe

    path, whole = tmp_path / f"r.{kind}", RECIPES["fast"].to_json()
    values = {"null": None} | VALUES | {"a number of 400 digits": 10**400, "infinite": float("inf")}
    for turn, name in enumerate([*whole, "more"]):
        for value in some(values.values(), every, turn, 7):
            if kind == "json":
                path.write_text(json.dumps(whole | {name: value}))
            elif value is not None and not isinstance(value, (dict, list)):
                text = {True: "true"}.get(value, json.dumps(value)) if value == value else "nan"
                path.write_text(f"{name} = {'inf' if value == float('inf') else text}\n")
            try:
                read_recipe(path)
            except GlassformerError as e:
                assert str(e).startswith(str(path)) and "\n" not in str(e) and len(str(e)) < 1_500


@EVERY
def test_every_field_of_a_sweep_is_looked_at(tmp_path, every):
    from glassformer.training.studies.sweep_spec import read_spec

    path = tmp_path / "s.toml"
    whole = {
        "task": '"addition"',
        "recipe": '"fast"',
        "seeds": "[0, 1]",
        "ensemble": "true",
        "models": "false",
    }
    texts = ["7", "-1", "1.5", "nan", "true", "[]", "[1, 1]", '"\\u001b[31m"', "{x = 1}", "[[1]]",
        "1979-05-27",
             "9" * 400, "9" * 5_000, "[" + "1," * 5_000 + "]", "[" * 5_000,
             '"' + 20_000 * "x" + '"']  # fmt: skip
    for turn, name in enumerate(
        [*whole, "more", "set", "grid", "set.lr", "grid.lr", "set.steps", "grid.seed"]
    ):
        for text in some(texts, every, turn, 4):
            rest = {n: t for n, t in whole.items() if n != name}
            path.write_text("".join(f"{n} = {t}\n" for n, t in (rest | {name: text}).items()))
            try:
                with soon():
                    read_spec(path, load_task)
            except GlassformerError as e:
                assert str(e).startswith(str(path)) and "\n" not in str(e) and len(str(e)) < 5_000


@EVERY
def test_every_field_of_a_runs_state_is_looked_at(tmp_path, every):
    """With a valid checksum, the state must still fit the run."""
    from glassformer.training import fit
    from glassformer.training.recipe import Recipe
    from glassformer.training.run_file import KEY, load_state, state_path

    task, out = load_task("addition:digits=1"), tmp_path / "m.safetensors"
    small = Recipe(steps=4, evaluate_every=2, batch=4, test_rows=5, d_model=4, d_mlp=4, n_layers=1)
    asked = []
    fit(task, small, 0, out=out, stop=lambda: len(asked) >= 2 or asked.append(1))
    path = state_path(out)
    arrays, header = load_state(path)
    header["smooth"] = float(header["smooth"]).hex()
    assert header["history"], "it has something in every field"
    refused = 0
    for turn, place in enumerate(places(header)):
        if place[:2] == ("identity", "recipe") and len(place) > 2:
            continue
        for value in some((None, -1, 10**30, [1], "\x1b[31m", {"x": 1}), every, turn, 3):
            path.write_bytes(
                sealed_state(KEY, put(json.loads(json.dumps(header)), place, value), arrays)
            )
            try:
                load_state(path)
            except GlassformerError as e:
                refused += 1
                assert str(e).startswith(str(path)) and "\n" not in str(e)
                assert len(str(e)) < 1_500
    assert refused > (100 if every else 40)
    name = next(n for n in arrays if n.startswith("theta."))
    for wrong in (
        {name: arrays[name] * np.nan},
        {name: np.zeros((2, 2))},
        {"theta.more": np.zeros(2)},
        {"optimizer.momentum.7": np.zeros(2)},
    ):
        path.write_bytes(sealed_state(KEY, header, arrays | wrong))
        with raises("damaged_file", path):
            fit(task, small, 0, out=out, resume=True)
    for change in (
        {"step": 5},
        {"decay_at": 4},
        {"history": [header["history"][0] | {"digits": [1.0]}]},
    ):
        path.write_bytes(sealed_state(KEY, header | change, arrays))
        with raises("damaged_file", path):
            fit(task, small, 0, out=out, resume=True)
    path.write_bytes(sealed_state(KEY, header, arrays))
    assert fit(task, small, 0, out=out, resume=True).status == "done"


# ── what is no file at all ─────────────────────────────────────────────────────────────────────
@pytest.fixture(params=["zero", "pipe", "folder", "socket", "nothing"])
def no_file(request, tmp_path):
    """A function that turns a path into a device, pipe, folder, socket or nothing."""
    open_sockets = []

    def make(path: Path) -> Path:
        if request.param == "zero":
            path.symlink_to("/dev/zero")
        elif request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "folder":
            path.mkdir()
        elif request.param == "socket":
            open_sockets.append(socket.socket(socket.AF_UNIX))
            here = os.getcwd()
            os.chdir(path.parent)  # a socket's path is short
            try:
                open_sockets[-1].bind(path.name)
            finally:
                os.chdir(here)
        return path

    yield make
    for each in open_sockets:
        each.close()


@pytest.mark.some(2)
def test_what_is_no_file_is_not_read(no_file, tmp_path, call):
    """Every command that reads a file refuses it at once, in one line."""
    fast = ("train", "addition:digits=1", "--out", tmp_path / "out.safetensors")
    state = no_file(tmp_path / "state.run.safetensors").with_name("state.safetensors")
    v, small = tmp_path / "w.json", "addition:digits=1"
    journal = no_file(tmp_path / "w.json.journal")
    words = [
        ("run", no_file(tmp_path / "a.safetensors")), ("run", no_file(tmp_path / "a.taotp")),
        (*fast, "--recipe", no_file(tmp_path / "r.json")), (*fast, "--recipe",
        no_file(tmp_path / "r.toml")),
        ("sweep", no_file(tmp_path / "s.toml")),
        ("verify", small, "--recheck", no_file(tmp_path / "v.json")),
        ("report", small, "--out", tmp_path / "r.html", "--history", no_file(tmp_path / "h.jsonl")),
        ("run", f"lookup:table={no_file(tmp_path / 't.csv')}", "1"), (*fast, "--init-from",
        tmp_path / "a.safetensors"),
        ("run", f"lookup:table={no_file(tmp_path / 't.json')}", "1"), (*fast, "--teacher",
        tmp_path / "a.safetensors"),
        ("prove", small, "--check", no_file(tmp_path / "c.json")),
        (*fast, "--parametrization", f"lora:base={tmp_path / 'a.safetensors'}"),
        ("train", "addition:digits=1", "--out", state, "--resume"), ("compare", small,
        tmp_path / "a.safetensors"),
    ]  # fmt: skip
    with soon():
        for each in words:
            one_line(call(*each), (2,))
        if os.path.lexists(journal):
            status, out, err = call("verify", small, "--out", v)
            assert status == 2 and not out and "w.json.journal — cannot be read: it is a" in err
        with pytest.raises(GlassformerError):
            read_key(no_file(tmp_path / "k.json"))


def test_a_gpt2_folder_of_what_are_no_files(no_file, gpt2, call):
    for name in ("model.safetensors", "config.json"):
        (gpt2 / name).unlink()
        no_file(gpt2 / name)
        with soon():
            one_line(call("run", gpt2, "a"), (2,))

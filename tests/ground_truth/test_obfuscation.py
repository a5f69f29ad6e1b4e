"""Obfuscated copies: the same function without names, and a key that maps back."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cases import CASES
from glassformer import GlassformerError, Labels, load, load_task, run
from glassformer.circuits.edges import measure_ground_truth
from glassformer.circuits.grading import score_edges, subspace_overlap
from glassformer.circuits.obfuscation import ObfuscationKey, compare_logits, obfuscate, read_key
from glassformer.core.checkpoint import digest, save
from helpers import largest_difference, raises, random_model

# Programs whose numbers are of so different sizes that no float64 holds them mixed: they can be
# shuffled only.
UNROTATED = ("addition:digits=2", "addition:digits=3,dtype=float32", "addition:digits=10",
             "addition:digits=2,padding=none", "multiplication:digits=2")  # fmt: skip
KINDS = [
    {}, {"norm": "rms"}, {"norm": "none"}, {"positions": "rotary"}, {"positions": "sinusoidal"},
    {"tied": True},
    {"positions": "alibi"}, {"positions": "none"}, {"qk_norm": True}, {"mask": "none"},
    {"n_layers": 0}, {"d_mlp": 0},
    {"extras": False, "norm_first": False}, {"extras": False, "norm_first": False, "norm": "rms"},
    {"extras": False, "d_model": 1, "norm": "none"},
]  # fmt: skip


def task_of(model):
    return load_task(model) if model.task else None


@pytest.mark.parametrize("ref,text,output", CASES)
@pytest.mark.some(9)
def test_a_copy_computes_the_same(ref, text, output):
    model = load(ref)
    rotate = ref not in UNROTATED
    copy, key = obfuscate(model, 1, rotate=rotate, task=task_of(model))
    assert run(copy, text).output == output
    assert key.faithful and key.checked >= 12
    assert key.difference < (
        1e-3 if model.dtype == "float64" else 1e-2
    )  # next to margins of 1 and shares of 2,000
    assert (
        copy.labels == Labels()
        and not copy.provenance
        and not copy.parametrization
        and copy.task == model.task
    )
    assert copy.dtype == model.dtype and (key.original, key.copy) == (digest(model), digest(copy))


@pytest.mark.parametrize("ref", UNROTATED)
def test_rotation_refused_with_a_hint(ref):
    model = load(ref)
    with raises("bad_argument", model.dtype, "rotate=False"):
        obfuscate(model, 1, task=task_of(model))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.some(5)
def test_random_models(kind, rotate):
    """Gains, biases, gates, sinusoids: all come along, whatever the architecture."""
    model = random_model(2, **kind)
    tokens = np.random.default_rng(0).integers(0, 7, (20, 9))
    copy, key = obfuscate(model, 5, rotate=rotate)
    assert largest_difference(model(tokens), copy(tokens)) < 1e-10
    if model.config.d_model > 1:
        assert np.abs(copy.weights["embed.W_E"] - model.weights["embed.W_E"]).max() > 0.01
    assert np.allclose(np.array(key.basis) @ np.array(key.basis).T, np.eye(model.config.d_model))
    sizes = [model.config.n_heads] * model.config.n_layers
    assert [sorted(h) for h in key.heads] == [list(range(n)) for n in sizes]


def test_gains_after_the_sum_are_refused():
    with raises("bad_argument", "blocks.0.ln1"):
        obfuscate(random_model(0, norm_first=False))


def test_nothing_is_changed_if_nothing_is_asked():
    model = load("addition:order=ones")
    copy, key = obfuscate(model, 1, rotate=False, shuffle=False)
    assert (
        digest(copy) == digest(model)
        and not key.changes
        and key.heads == [[0, 1]]
        and not copy.labels.slots
    )


def test_seeds():
    model = load("reverse")
    a, b, c = (obfuscate(model, seed).model for seed in (1, 1, 2))
    assert digest(a) == digest(b) != digest(c)


@pytest.mark.slow
def test_the_key_leads_back():
    """Heads, neurons and directions that are found in the copy are those of the original."""
    model = load("addition:digits=2,variant=book")
    copy, key = obfuscate(model, 3, task=load_task(model))
    assert key.heads[0] != list(range(5)) and key.neurons[0] != list(range(1791))
    M = np.array(key.basis)
    for h in range(5):
        old = int(key.original_part(f"head 0.{h}").removeprefix("head 0."))
        for name in ("W_Q", "W_V"):
            result = M @ copy.weights[f"blocks.0.attn.{name}"][h]
            assert np.allclose(result, model.weights[f"blocks.0.attn.{name}"][old], atol=1e-8)
    for f in (0, 1000):
        old = int(key.original_part(f"neuron 0.{f}").removeprefix("neuron 0."))
        back = key.original_directions(copy.weights["blocks.0.mlp.W_out"][f])
        assert np.allclose(
            back, model.weights["blocks.0.mlp.W_out"][old], rtol=1e-6, atol=1e-3
        )  # they are of 1e10
    assert key.original_part("embed") == "embed" and key.labels["slots"]["value"] == [0, 1]
    with raises("bad_argument", "head 0.9"):
        key.original_part("head 0.9")


def test_a_round_of_the_game():
    """Somebody finds edges and a subspace in the copy; the key and the truth of the original
    score them.
    """
    model = load("multiplication:digits=2")
    known = measure_ground_truth(model, load_task(model))
    copy, key = obfuscate(model, 7, rotate=False, task=load_task(model))
    assert key.heads != [[0, 1], [0, 1]]
    results = [
        (e.writer, e.reader, e.port)
        for e in measure_ground_truth(copy, load_task(model)).edges
        if e.matters
    ]
    right = score_edges(known, key.original_edges(results))
    assert (right.precision, right.recall) == (1, 1)
    assert score_edges(known, results).precision < 1  # without the key, heads are the wrong ones
    model = load("reverse")
    copy, key = obfuscate(model, 7)
    slot = measure_ground_truth(model, load_task(model)).directions("position")
    keys = copy.weights["blocks.0.attn.W_K"][0].T  # what its keys read
    assert np.allclose(
        subspace_overlap(key.original_directions(keys), slot), (2 / 3, 1)
    )  # a ring is flat, W_K is not
    assert subspace_overlap(keys, slot)[0] < 0.9 * 2 / 3


def test_noise():
    model = load("modular-addition:variant=clock")
    task = load_task(model)
    copies = [obfuscate(model, 4, noise=x, task=task) for x in (0.0, 0.001, 0.3)]
    assert copies[1].key.changed == 0 and copies[1].key.difference > 1e-5
    assert (
        copies[2].key.changed > 0 and not copies[2].key.faithful
    )  # noise is reported, not refused
    for name, w in copies[0].model.weights.items():
        off = copies[1].model.weights[name] - w
        assert (
            0.5 < np.sqrt(np.mean(off**2)) / (0.001 * np.sqrt(np.mean(w**2)) or 1) < 1.5
            or not w.any()
        )
    with raises("bad_argument", "noise", 1000, -1):
        obfuscate(model, noise=-1)


def test_compare_logits_of_a_copy():
    model = load("reverse")
    other = replace(
        model,
        weights=dict(model.weights) | {"blocks.0.attn.W_O": -model.weights["blocks.0.attn.W_O"]},
    )
    checked, changed, difference = compare_logits(model, other, load_task(model))
    assert changed > 0.5 * checked and difference > 0.5
    broken = replace(
        model, weights=dict(model.weights) | {"blocks.0.attn.W_O": np.full((1, 3, 6), np.nan)}
    )
    assert compare_logits(model, broken)[1] == compare_logits(model, broken)[0]


@pytest.mark.slow
def test_a_checkpoint_of_parametrization_rotated(tmp_path):
    from glassformer.parametrizations import build_parametrization
    from glassformer.training import fit
    from training.small import TASK, recipe

    path = tmp_path / "x.safetensors"
    fit(TASK, recipe(steps=5), 0, parametrization=build_parametrization("rotated:seed=4"), out=path)
    model = load(str(path))
    assert model.parametrization == "rotated:seed=4"
    copy, key = obfuscate(model, 1, task=TASK)
    assert not copy.parametrization and not copy.theta and key.faithful
    save(copy, path)
    assert digest(load(str(path))) == key.copy


# ── the command and its files ──────────────────────────────────────────────────────────────────
def test_command(call, tmp_path):
    path, key_path = tmp_path / "copy.safetensors", tmp_path / "key.json"
    status, out, _ = call("obfuscate", "reverse", "--seed", 3, "--out", path, "--key", key_path)
    assert status == 0 and "0 of 6,096 answer tokens differ from the original's" in out
    key = read_key(key_path)
    assert (
        key == obfuscate(load("reverse"), 3, task=load_task("reverse")).key and key.ref == "reverse"
    )
    assert digest(load(str(path))) == key.copy and b"mirrored" not in path.read_bytes()
    status, out, _ = call("run", path, "12345")
    assert (status, out) == (0, "54321\n")
    status, out, _ = call(
        "obfuscate", "addition", "--no-rotate", "--out", path, "--key", key_path, "--json"
    )
    assert status == 0 and json.loads(out)["changed"] == 0 and json.loads(out)["checked"] == 8000


@pytest.mark.parametrize("words,says", [
    (["addition", "--out", "c.safetensors", "--key", "k.json"], "--no-rotate"),
    (["reverse", "--out", "c.txt", "--key", "k.json"], "expected FILE.safetensors"),
    (["reverse", "--out", "c.safetensors", "--key", "c.safetensors"],
    "expected FILE.json"),
    (["reverse", "--out", "none/c.safetensors", "--key", "k.json"], "cannot be written"),
    (["reverse", "--out", "c.safetensors", "--key", "k.json", "--noise", "-1"], "noise"),
])  # fmt: skip
def test_command_with_bad_input(call, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    status, out, err = call("obfuscate", *words)
    assert status == 2 and not out and says in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text,says", [
    ("{", "not JSON"), ("[]", "glassformer-key"), ('{"format": "glassformer-key"}',
    "None"),
    ('{"format": "glassformer-key", "version": 1}', "original"),
])  # fmt: skip
def test_files_that_are_no_keys(tmp_path, text, says):
    path = tmp_path / "k.json"
    path.write_text(text)
    with pytest.raises(GlassformerError) as error:
        read_key(path)
    assert "k.json" in str(error.value) and says in str(error.value)
    with raises("not_found", "none"):
        read_key(tmp_path / "none")


def test_a_key_survives_json():
    key = obfuscate(load("reverse"), 2).key
    assert ObfuscationKey.from_json(json.loads(json.dumps(key.to_json()))) == key

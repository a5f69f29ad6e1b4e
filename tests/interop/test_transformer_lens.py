"""TransformerLens: the same logits and the same cache, name by name, in the real library, 4.x
here and 3.9 apart.
"""

import runpy
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from cases import CASES, every, few
from glassformer import Model, load, run
from glassformer.core.hooks import record
from glassformer.interop import export_checked
from glassformer.interop.parity import parity_batch, to_float32_if_safe
from glassformer.interop.transformer_lens import (
    TransformerLensBridge,
    adjacent_pair_order,
    config_fields,
    from_transformer_lens,
    state_dict,
    to_transformer_lens,
)
from helpers import largest_difference, raises, random_model

ROOT = Path(__file__).parents[2]


def without(model: Model, *parts: str) -> Model:
    return replace(
        model, weights={n: w for n, w in model.weights.items() if not any(p in n for p in parts)}
    )


MODELS = {
    "plain": random_model(extras=False),
    "relu, tied": random_model(extras=False, activation="relu", tied=True),
    "gelu_new": random_model(extras=False, activation="gelu_new"),
    "silu": random_model(extras=False, activation="silu"),
    "all arrays": without(random_model(gated=False), "_norm"),
    "gated": without(random_model(), "_norm", "mlp.b_"),
    "gated, rms": without(
        random_model(norm="rms", activation="silu"), "_norm", "mlp.b_", "ln1.b", "ln2.b", "final.b"
    ),
    "rms": random_model(extras=False, norm="rms"),
    "no norm": random_model(extras=False, norm="none"),
    "no mask": random_model(extras=False, mask="none"),
    "no MLP": random_model(extras=False, d_mlp=0),
    "no MLP in one block": without(random_model(extras=False), "blocks.0.mlp"),
    "no layers": random_model(extras=False, n_layers=0),
    "no positions": random_model(extras=False, positions="none"),
    "sinusoidal": random_model(extras=False, positions="sinusoidal"),
    "rotary": random_model(extras=False, positions="rotary", d_head=5, base=50.0),
    "rotary, an odd base": random_model(extras=False, positions="rotary", base=2.5),
    "scale": without(random_model(gated=False, scale=0.7), "_norm"),
}


def tokens_for(model: Model) -> np.ndarray:
    return np.random.default_rng(0).integers(0, model.config.d_vocab, (5, model.config.n_ctx))


def as_theirs(model: Model, cache: dict, version: int) -> dict:
    """Return our cache with the activations that TransformerLens computes differently."""
    c, changed = model.config, {}
    for name, ours in cache.items():
        place, _, hook = name.rpartition(".")
        if hook == "hook_pos_embed":  # theirs is repeated for every text
            ours = np.broadcast_to(ours, cache["hook_embed"].shape)
        if hook in ("hook_q", "hook_rot_q") and c.scale:
            ours = ours * c.scale * c.d_head**0.5
        if hook in ("hook_q", "hook_k", "hook_rot_q", "hook_rot_k") and c.positions == "rotary":
            ours = ours[..., adjacent_pair_order(c.d_head)]
        if version == 4 and hook == "hook_attn_scores":
            ours = cache[f"{place}.hook_pattern"]
        if not (version == 4 and hook in ("hook_rot_q", "hook_rot_k")):
            changed[name] = ours
    return changed


@pytest.mark.parametrize("kind", every(3, MODELS))
@pytest.mark.some(3)
def test_logits_and_cache_are_the_same_name_by_name(kind):
    model = MODELS[kind]
    tokens = tokens_for(model)
    logits, cache = record(model, tokens)
    with torch.no_grad():
        theirs, their_cache = to_transformer_lens(model).run_with_cache(torch.tensor(tokens))
    assert largest_difference(logits, theirs) < 1e-4
    expected = as_theirs(model, cache, 4)
    assert not set(expected) - set(their_cache.keys())
    far = {
        n: d
        for n, ours in expected.items()
        if (d := largest_difference(ours, their_cache[n])) > 1e-4
    }
    assert not far


def test_all_other_activations_are_equal():
    """`as_theirs` changes only what the export's notes list, and nothing else in a plain model."""
    cache = record(MODELS["plain"], tokens_for(MODELS["plain"]))[1]
    changed = {
        n.split(".")[-1]
        for n, v in as_theirs(MODELS["plain"], cache, 3).items()
        if v is not cache[n]
    }
    assert changed == {"hook_pos_embed"}


@pytest.mark.parametrize("kind", every(3, MODELS))
@pytest.mark.some(3)
def test_there_and_back(kind):
    model = MODELS[kind]
    tokens, bridge = tokens_for(model), to_transformer_lens(model)
    for back in (
        from_transformer_lens(bridge),
        from_transformer_lens(state_dict(model), config_fields(model)),
    ):
        assert largest_difference(model(tokens), back(tokens)) < 1e-4
        same = kind not in (
            "scale",
            "sinusoidal",
            "no MLP in one block",
            "no layers",
        )  # folded, written out, filled in
        if same:
            assert back.config == model.config
            assert {n: w.shape for n, w in back.weights.items()} == {
                n: w.shape for n, w in model.weights.items()
            }


@pytest.mark.parametrize("model,mention", [
    (random_model(extras=False, norm_first=False), "norm_first"),
    (random_model(extras=False, positions="alibi"), "positions"),
    (random_model(extras=False, positions="rotary", d_head=1), "d_head"),
    (random_model(extras=False, qk_norm=True), "qk_norm"),
    (random_model(norm="rms", gated=False), "blocks.0.ln1.b"),
    (random_model(), "blocks.0.mlp.b_in"),
    (without(random_model(), "_norm", "mlp.b_", "0.mlp.W_gate"), "W_gate"),
])  # fmt: skip
def test_unsupported_models_are_refused_before_writing(model, mention, tmp_path):
    with raises("unsupported", "transformer-lens", mention):
        export_checked(model, "transformer-lens", tmp_path / "out")
    assert not list(tmp_path.iterdir())
    with raises("unsupported", mention):
        to_transformer_lens(model)


@pytest.mark.parametrize("field,value", [
    ("attn_scores_soft_cap", 30.0), ("n_key_value_heads", 1), ("final_rms", True), ("rotary_dim",
    2),
    ("positional_embedding_type", "alibi"), ("act_fn", "solu"), ("normalization_type", "BN"),
    ("d_vocab_out", 3),
    ("use_qk_norm", True),
])  # fmt: skip
def test_unsupported_fields_are_refused_by_name(field, value):
    model = MODELS["rotary" if field == "rotary_dim" else "plain"]
    with raises("unsupported", f"{field}="):
        from_transformer_lens(state_dict(model), config_fields(model) | {field: value})


def test_a_scale_of_theirs_is_read():
    model = MODELS["plain"]
    half = from_transformer_lens(state_dict(model), config_fields(model) | {"attn_scale": 2.0})
    none = from_transformer_lens(
        state_dict(model), config_fields(model) | {"use_attn_scale": False}
    )
    assert (half.config.scale, none.config.scale) == (0.5, 1.0)


def test_a_folder_is_read_back(tmp_path):
    model = load("reverse")
    done = export_checked(model, "transformer-lens", tmp_path / "reverse")
    assert sorted(p.name for p in done.path.iterdir()) == [
        "config.json",
        "load.py",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert done.parity < 1e-5 and not done.differ
    back = TransformerLensBridge().read(done.path)
    assert (back.vocabulary, back.task) == (model.vocabulary, model.task)
    assert {n: w.shape for n, w in back.weights.items()} == {
        n: w.shape for n, w in model.weights.items()
    }
    with raises("damaged_file", tmp_path):
        TransformerLensBridge().read(tmp_path)


# ── programs ───────────────────────────────────────────────────────────────────────────────────
NOISY = {"addition:digits=3,dtype=float32", "addition:digits=10"}  # by the order of sums
REFS = list(dict.fromkeys(ref for ref, _, _ in CASES))


@pytest.mark.parametrize("ref,text", few([case[:2] for case in CASES]))
@pytest.mark.some(3)
def test_programs_decode_as_they_do_here(ref, text):
    model = load(ref)
    ours, bridge = run(model, text), to_transformer_lens(model)
    tokens = list(ours.prompt)
    while len(tokens) < len(ours.tokens):
        with torch.no_grad():
            logits = bridge(torch.tensor([tokens[-model.config.n_ctx :]]))
        tokens.append(int(logits[0, -1].argmax()))
    assert tokens == ours.tokens


# ── text ───────────────────────────────────────────────────────────────────────────────────────
def texts(model, ref):
    """The examples of a program: its cases, and what its test batch reads."""
    say, result = model.vocabulary, [run(model, text).tokens for r, text, _ in CASES if r == ref]
    return [say.decode(ids) for ids in [*result, *parity_batch(model).tokens[:20]]]


@pytest.mark.parametrize("ref", REFS)
def test_texts_are_encoded_as_here(ref):
    model = load(ref)
    made = to_transformer_lens(model).tokenizer
    for text in texts(model, ref):
        ids = model.vocabulary.encode(text)
        assert made(text)["input_ids"] == ids
        assert made.decode(ids) == model.vocabulary.decode(ids)


@pytest.mark.parametrize(
    "ref,asked,said",
    [
        ("addition:digits=3,order=ones", "127+458=", "127+458=5850"),
        ("addition:digits=10", "9999999999+0000000001=", "9999999999+0000000001=10000000000"),
        ("addition:digits=2,padding=none", "<bos>84+88=", "<bos>84+88=172<eos>"),
        pytest.param("sort:vocab=20", "6 2 12 18 7 19", None, marks=pytest.mark.slow),
        ("lang/dyck-1", "( ) ) (", None),
    ],
)
@pytest.mark.some(4)
def test_text_to_text(ref, asked, said, tmp_path):
    """`to_tokens`, `model(text)`, `to_string` and `generate`, from Python and from a folder."""
    model = load(ref)
    folder = export_checked(model, "transformer-lens", tmp_path / "x").path
    for bridge in (to_transformer_lens(model), runpy.run_path(str(folder / "load.py"))["model"]):
        tokens = bridge.to_tokens(asked)
        read = model.to_tokens(asked).tolist()  # with <bos> before it, if the model was compiled
        assert tokens.tolist() == [read]
        text = model.vocabulary.decode(read)
        assert bridge.to_string(tokens[0]) == text and text.endswith(asked)
        assert "".join(bridge.to_str_tokens(asked)) == text.replace(model.vocabulary.sep, "")
        with torch.no_grad():
            best = bridge(asked)[0].argmax(-1)
            several = bridge([asked, asked])[1].argmax(-1)
        assert best.tolist() == several.tolist() == model(asked).argmax(-1).tolist()
        if said:
            new = len(model.vocabulary.encode(said)) - len(tokens[0])
            how = {"do_sample": False, "verbose": False, "max_new_tokens": new}
            assert bridge.generate(asked, **how) == said
            assert bridge.generate([asked, asked], **how) == [said, said]


def test_generate_ends_at_the_stop_token():
    bridge = to_transformer_lens(load("reverse"))
    how = {"do_sample": False, "verbose": False, "max_new_tokens": 6}
    assert bridge.generate("12345=", **how) == "12345=54321<EOS>"
    assert bridge.generate(["00000=", "12345="], **how) == ["00000=00000<EOS>", "12345=54321<EOS>"]


def test_the_loader_of_a_folder_needs_only_the_folder(tmp_path):
    model = load("addition:digits=3,order=ones")
    done = export_checked(model, "transformer-lens", tmp_path / "out")
    result = runpy.run_path(str(done.path / "load.py"))
    batch = parity_batch(model)
    with torch.no_grad():
        output = result["model"](torch.tensor(batch.tokens)).numpy().argmax(-1)
    assert (output == batch.targets)[batch.answer_mask].all()
    assert result["vocabulary"]["tokens"] == list(model.vocabulary.tokens)
    assert any("hook_q is ours times 1.41421" in note for note in done.notes)


# ── 3.9 ────────────────────────────────────────────────────────────────────────────────────────
THREE = """
import importlib, sys
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
sys.path.append(sys.argv[2])
from glassformer.interop.transformer_lens import from_transformer_lens
for folder in sorted(Path(sys.argv[1]).iterdir()):
    sys.path[0] = str(folder)
    sys.modules.pop("load", None)
    model = importlib.import_module("load").model
    assert type(model).__name__ == "HookedTransformer"
    tokens = load_file(folder / "tokens")["tokens"]
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens)
    back = torch.tensor(from_transformer_lens(model)(tokens.numpy()))
    kept = {"logits": logits, "back": back} | {n: cache[n] for n in cache}
    save_file({n: v.clone().contiguous() for n, v in kept.items()}, folder / "theirs")
"""


@pytest.fixture(scope="session")
def three(tmp_path_factory):
    """The Python of an environment with transformer-lens 3.9, the last with HookedTransformer;
    made once. What it needs besides, it finds in the environment of the tests.
    """
    home = tmp_path_factory.getbasetemp().parent / "transformer-lens-3.9"
    python = home / "bin" / "python"
    if not (home / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        place = {"base": str(home), "platbase": str(home)}
        ours = Path(sysconfig.get_path("purelib", vars=place)) / "ours.pth"
        ours.write_text(sysconfig.get_path("purelib") + "\n")
        pins = [
            line
            for line in (ROOT / "constraints.txt").read_text().splitlines()
            if "transformer-lens" not in line
        ]
        (home / "constraints.txt").write_text("\n".join(pins))
        pip = [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "-c",
            home / "constraints.txt",
            "transformer-lens==3.9.0",
        ]
        subprocess.run(pip, check=True)
        (home / "made").touch()
    return python


@pytest.mark.slow
def test_three_point_nine(three, tmp_path):
    """One environment, all models: logits, the cache name by name, and back; and programs
    decode.
    """
    programs = {ref: load(ref) for ref in REFS if ref not in NOISY}
    models = MODELS | programs
    folders = {kind: tmp_path / f"{i:02}" for i, kind in enumerate(models)}
    batches = {kind: parity_batch(model) for kind, model in models.items()}
    for kind, model in models.items():
        TransformerLensBridge().write(to_float32_if_safe(model)[0], folders[kind])
        save_file(
            {"tokens": np.ascontiguousarray(batches[kind].tokens[:64])}, folders[kind] / "tokens"
        )
    (tmp_path.parent / "three.py").write_text(THREE)
    subprocess.run([three, tmp_path.parent / "three.py", tmp_path, ROOT / "src"], check=True)
    for kind, model in models.items():
        theirs, tokens = load_file(folders[kind] / "theirs"), batches[kind].tokens[:64]
        logits, cache = record(model, tokens)
        asked = batches[kind].answer_mask[
            :64
        ]  # elsewhere a program may be on the edge between two keys
        assert largest_difference(logits[asked], theirs["logits"][asked]) < 1e-4, kind
        assert largest_difference(theirs["logits"][asked], theirs["back"][asked]) < 1e-4, kind
        assert (logits.argmax(-1) == theirs["logits"].argmax(-1))[asked].all(), kind
        if kind in MODELS:
            expected = as_theirs(model, cache, 3)
            assert not set(expected) - set(theirs), kind
            far = {
                n: d
                for n, ours in expected.items()
                if (d := largest_difference(ours, theirs[n])) > 1e-4
            }
            assert not far, kind

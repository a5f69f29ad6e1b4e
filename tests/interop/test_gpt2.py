"""GPT-2: our logits are a real `transformers` GPT-2's, and its tokenizer and `generate` do what
ours do.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import CASES, every, few
from glassformer import GlassformerError, Vocabulary, load, run
from glassformer.generate import prompt_tokens
from glassformer.interop import export_checked, parity
from glassformer.interop.folder import read_folder
from glassformer.interop.gpt2 import Gpt2Bridge, silence_transformers, stream_copies, to_gpt2
from glassformer.interop.tokenizer import build_tokenizer
from helpers import largest_difference, raises, random_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# Unsupported programs -> the field.
REFUSED = {"modular-addition": "norm", "modular-addition:operation=-": "norm"}
NOISY = {
    "addition:digits=3,dtype=float32"
}  # whose own float32 logits depend on the order of sums by more than 1e-4


def theirs(folder):
    with silence_transformers():
        net = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
        return net, transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


def says(folder, model, text, ties=False):
    """Return the text that transformers generates."""
    net, words = theirs(folder)
    ours = run(model, text)
    read_ = words(model.vocabulary.decode(ours.prompt), return_tensors="pt")
    assert read_["input_ids"][0].tolist() == ours.prompt
    n = len(ours.tokens) - len(ours.prompt)
    if ties:
        out = [*ours.prompt]
        while len(out) < len(ours.tokens):
            with torch.no_grad():
                out.append(int(net(torch.tensor([out])).logits[0, -1].argmax()))
    else:
        out = net.generate(**read_, max_new_tokens=n)[0].tolist()
    assert words.decode(out) == model.vocabulary.decode(ours.tokens)
    return words.decode(out[len(ours.prompt) :], skip_special_tokens=True)


@pytest.mark.parametrize("ref,text,output", few(CASES))
@pytest.mark.some(3)
def test_every_program_decodes_the_same_or_is_refused_first(ref, text, output, tmp_path):
    model = load(ref)
    if ref in REFUSED:
        with raises("unsupported", REFUSED[ref], "none"):
            export_checked(model, "gpt2", tmp_path / "x")
        assert not list(tmp_path.iterdir())
        return
    done = export_checked(model, "gpt2", tmp_path / "x")
    assert done.differ == 0 and (done.parity < 1e-4 or ref in NOISY), done
    ties = any("generate rounds logits to float32" in note for note in done.notes)
    assert ties == (ref == "addition:digits=10")
    assert says(tmp_path / "x", model, text, ties) == output


BOOK = pytest.param("addition:digits=2,variant=book", "99+1", marks=pytest.mark.slow)


@pytest.mark.parametrize("ref,text", [("addition:digits=2", "45+78"), BOOK])
def test_a_larger_tolerance_for_noisy_programs(ref, text, tmp_path):
    done = export_checked(load(ref), "gpt2", tmp_path / "x", tolerance=0.01)
    assert done.parity < 0.01 and done.differ == 0
    if ref == "addition:digits=2":
        assert done.parity > 1e-4 and done.dtype == "float32"
    assert says(tmp_path / "x", load(ref), text) == run(ref, text).output


def test_generate_needs_no_settings(tmp_path):
    export_checked(load("reverse"), "gpt2", tmp_path / "x")
    net, words = theirs(tmp_path / "x")
    out = net.generate(**words(["12345=", "99999="], return_tensors="pt"))
    assert words.batch_decode(out) == ["12345=54321<EOS>", "99999=99999<EOS>"]


# ── twins ──────────────────────────────────────────────────────────────────────────────────────
def logits(settings_, arrays, tokens):
    """A GPT-2 in float64, to exclude rounding effects."""
    config = transformers.GPT2Config(**settings_, bos_token_id=None, eos_token_id=None)
    net = transformers.GPT2LMHeadModel(config).double().eval()
    net.load_state_dict(
        {n: torch.tensor(a, dtype=torch.float64) for n, a in arrays.items()}, strict=True
    )
    with torch.no_grad():
        return net(input_ids=torch.as_tensor(tokens)).logits.numpy()


ODD = [
    {}, {"n_layers": 0}, {"d_mlp": 0}, {"tied": True}, {"d_model": 5, "n_heads": 2, "d_head": 1,
    "tied": True},
    {"n_heads": 2, "d_head": 2, "tied": True}, {"d_model": 7, "n_heads": 3, "d_head": 5,
    "scale": 0.3},
    {"positions": "sinusoidal"}, {"positions": "none"}, {"d_model": 1, "n_heads": 1}, {"eps": 0.0,
    "d_model": 6},
    *({"activation": a} for a in ("relu", "gelu", "gelu_new", "silu")),
]  # fmt: skip


@pytest.mark.parametrize("extras", [True, False])
@pytest.mark.parametrize("choices", ODD)
def test_random_models_are_the_same_gpt2(choices, extras):
    model = random_model(3, extras, gated=False, **choices).astype("float32").astype("float64")
    tokens = np.random.default_rng(0).integers(0, 7, (5, 9))
    settings_, arrays, _ = to_gpt2(model, "float64")
    assert largest_difference(model(tokens), logits(settings_, arrays, tokens)) < 1e-9


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    d=st.integers(2, 9),
    heads=st.integers(1, 5),
    size=st.integers(1, 7),
    tied=st.booleans(),
    extras=st.booleans(),
)
def test_any_heads_fit_any_width(d, heads, size, tied, extras):
    model = random_model(0, extras, gated=False, d_model=d, n_heads=heads, d_head=size, tied=tied)
    settings_, arrays, _ = to_gpt2(model, "float64")
    assert (
        settings_["n_head"] == heads
        and settings_["n_embd"] % heads == 0
        and settings_["n_embd"] % d == 0
    )
    tokens = np.random.default_rng(0).integers(0, 7, (2, 9))
    assert largest_difference(model(tokens), logits(settings_, arrays, tokens)) < 1e-9


def test_the_stream_is_repeated_no_more_than_needed():
    c = random_model(d_model=6, n_heads=3, d_head=2).config
    assert stream_copies(c, False) == 1 and stream_copies(c, True) == 2
    assert stream_copies(random_model(d_model=5, n_heads=2, d_head=1).config, False) == 2
    assert stream_copies(random_model(d_model=4, n_heads=2, d_head=9).config, False) == 5


@pytest.mark.parametrize("choices", every(4, ODD))
@pytest.mark.some(2)
def test_reading_back_gives_the_same_model(choices, tmp_path):
    model = replace(
        random_model(5, extras=False, **choices), task="t", vocabulary=Vocabulary("abcdefg")
    )
    export_checked(model, "gpt2", tmp_path / "x", tolerance=1e-3)
    again = read_folder(tmp_path / "x")
    tokens = parity.parity_batch(model).tokens
    assert again.dtype == "float32" and again.vocabulary == model.vocabulary and again.task == "t"
    assert largest_difference(model(tokens), again(tokens)) < 1e-3
    assert largest_difference(Gpt2Bridge().logits(tmp_path / "x", tokens), again(tokens)) < 1e-3


def test_reading_back_keeps_task_and_labels(tmp_path):
    model = load("reverse")
    export_checked(model, "gpt2", tmp_path / "x")
    again = read_folder(tmp_path / "x")
    assert again.labels == model.labels and run(again, "12345").output == "54321"


# ── refusal ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "choices,field",
    [
        ({"norm": "none"}, "norm"), ({"norm": "rms"}, "norm"),
        ({"norm_first": False}, "norm_first"),
        ({"positions": "rotary"}, "positions"), ({"positions": "alibi"}, "positions"),
        ({"mask": "none"}, "mask"), ({"qk_norm": True}, "qk_norm"), ({"gated": True}, "W_gate")
    ],
)  # fmt: skip
def test_unsupported_models_are_refused_by_field(choices, field, tmp_path):
    with raises("unsupported", "gpt2", field, "torch"):
        export_checked(random_model(**({"gated": False} | choices)), "gpt2", tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpt2") / "x"
    export_checked(load("reverse"), "gpt2", path)
    return path


@pytest.fixture
def changed(folder, tmp_path):
    """A copy of the folder with other fields."""

    def copy(**fields):
        for p in folder.iterdir():
            (tmp_path / p.name).write_bytes(p.read_bytes())
        config = json.loads((tmp_path / "config.json").read_text()) | fields
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return copy


@pytest.mark.parametrize(
    "field,value",
    [
        ("scale_attn_by_inverse_layer_idx", True), ("reorder_and_upcast_attn", True),
        ("add_cross_attention", True),
        ("activation_function", "tanh"), ("model_type", "gptj"), ("architectures",
        ["GPT2ForSequenceClassification"]),
        ("auto_map", {"AutoModel": "evil.py"}), ("quantization_config", {"bits": 4}), ("rope_theta",
        10_000),
        ("pruned_heads", {"0": [0]}), ("n_head", 4), ("n_embd", 7), ("n_embd", "x"), ("n_layer", 2),
        ("n_layer", -1),
        ("glassformer", {"vocabulary": 3}), ("tie_word_embeddings", False), ("n_head", 0)
    ],
)  # fmt: skip
def test_a_foreign_field_is_refused_by_name(changed, field, value):
    with pytest.raises(GlassformerError) as e:
        read_folder(changed(**{field: value}))
    if field not in ("n_embd", "n_layer", "glassformer", "tie_word_embeddings", "n_head"):
        assert f"config.json: {field}" in str(e.value) and e.value.code == "unsupported"


def test_an_unscaled_model_is_read(changed):
    path = changed(scale_attn_weights=False, **{"glassformer": None})
    again, tokens = read_folder(path), parity.parity_batch(load("reverse")).tokens
    assert again.vocabulary == Vocabulary.numbers(14) and again.config.scale == 1
    assert largest_difference(Gpt2Bridge().logits(path, tokens), again(tokens)) < 1e-5


def test_a_default_gpt2_is_read(tmp_path):
    torch.manual_seed(0)
    sizes = {"vocab_size": 11, "n_positions": 8, "n_embd": 12, "n_layer": 2, "n_head": 3}
    config = transformers.GPT2Config(**sizes, eos_token_id=1, bos_token_id=1)
    net = transformers.GPT2LMHeadModel(config)
    with silence_transformers(), torch.no_grad():
        for p in net.parameters():
            p.normal_()
        net.save_pretrained(tmp_path)
    tokens = np.random.default_rng(0).integers(0, 11, (4, 8))
    model = read_folder(tmp_path)
    assert model.config.activation == "gelu_new" and model.config.d_mlp == 48 and model.config.tied
    assert largest_difference(Gpt2Bridge().logits(tmp_path, tokens), model(tokens)) < 1e-5


def test_pickles_and_damaged_files_are_refused(changed):
    path = changed()
    weights = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(weights[:-9])
    with raises("damaged_file", path):
        read_folder(path)
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with raises("not_found", "model.safetensors", "pytorch_model.bin"):
        read_folder(path)
    for text in ("{", "[" * 100_000, "[]", "{}"):
        (path / "config.json").write_text(text)
        with pytest.raises(GlassformerError) as e:
            read_folder(path)
        assert "config.json" in str(e.value)


# ── text ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "vocabulary",
    [
        Vocabulary([*"0123456789+=", "<PAD>", "<EOS>"]), Vocabulary([*"ab", "aab", "ba", " ", "\n",
        "é"]),
        Vocabulary([*"().*[]\\^$|?+{}-#&~/'\"", "<|x|>", "日本"]), Vocabulary.numbers(120, 3),
        Vocabulary([";", "<bos>", "12", "1", "+", "="], sep=" ")
    ],
)  # fmt: skip
def test_texts_and_tokens_are_the_same(vocabulary):
    made, rng = build_tokenizer(vocabulary), np.random.default_rng(0)
    for n in (1, 2, 5, 40):
        ids = rng.integers(0, len(vocabulary), n).tolist()
        text = vocabulary.decode(ids)
        assert made.encode(text).ids == vocabulary.encode(text)
        assert made.decode(ids, skip_special_tokens=False) == text


def test_unknown_text_is_an_error_in_transformers(folder):
    words = theirs(folder)[1]
    with pytest.raises(Exception, match="UNK"):
        words("12x45=")
    assert words("12345=")["input_ids"] == prompt_tokens(load("reverse"), "12345")


def test_nothing_is_printed(tmp_path, capfd):
    export_checked(load("hello-world"), "gpt2", tmp_path / "x")
    assert re.sub(r"\s", "", "".join(capfd.readouterr())) == ""

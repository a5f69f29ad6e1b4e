"""Models read from Llama folders have the logits of `transformers`."""

import json

import numpy as np
import pytest
from safetensors.torch import save_file

from glassformer import GlassformerError, decode, load
from glassformer.interop.folder import read_folder
from glassformer.interop.gpt2 import silence_transformers
from helpers import largest_difference

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
SIZES = {
    "vocab_size": 11, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
    "num_attention_heads": 6, "max_position_embeddings": 16, "eos_token_id": None,
    "bos_token_id": None,
}  # fmt: skip


def write(path, dtype="float32", **choices):
    """A random Llama in a folder."""
    torch.manual_seed(0)
    with silence_transformers(), torch.no_grad():
        net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(SIZES | choices)))
        for p in net.parameters():
            p.copy_(torch.randn_like(p))
        net = net.to(getattr(torch, dtype)).eval()
        net.save_pretrained(path)
    return net


def logits(path, tokens, dtype=None):
    with silence_transformers(), torch.no_grad():
        dtype = dtype or torch.float32
        net = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
        return net(input_ids=torch.as_tensor(tokens), use_cache=False).logits.numpy()


TOKENS = np.random.default_rng(0).integers(0, 11, (5, 16))


@pytest.mark.parametrize("choices", [
    {}, {"num_key_value_heads": 6}, {"num_key_value_heads": 2}, {"num_key_value_heads": 1},
    {"head_dim": 4}, {"attention_bias": True}, {"mlp_bias": True}, {"tie_word_embeddings": True},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 50.5}}, {"rms_norm_eps": 0.1},
    {"hidden_act": "gelu"}, {"num_hidden_layers": 0}, {"num_hidden_layers": 3},
    {"num_key_value_heads": 3, "attention_bias": True, "mlp_bias": True, "head_dim": 6},
], ids=str)  # fmt: skip
@pytest.mark.some(3)
def test_logits_are_the_same(choices, tmp_path):
    write(tmp_path, **choices)
    model = read_folder(tmp_path)
    assert model.dtype == "float32"
    assert largest_difference(model(TOKENS), logits(tmp_path, TOKENS)) < 3e-5
    assert model.config.positions == "rotary" and model.config.norm == "rms"


def test_it_loads_as_any_model(tmp_path):
    """It loads by its path; each head has a copy of shared keys."""
    net = write(tmp_path, num_key_value_heads=2)
    model = load(tmp_path)
    keys = model.W_K  # L H D K
    assert np.array_equal(keys[:, 0], keys[:, 2]) and not np.array_equal(keys[:, 2], keys[:, 3])
    prompt = TOKENS[0, :4].tolist()
    with silence_transformers():
        theirs = net.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)
    assert decode(model, prompt, steps=8).tolist() == theirs[0].tolist()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_types(family, dtype, tmp_path):
    """bfloat16 and float16 become float32, float64 stays."""
    if family == "llama":
        net = write(tmp_path, dtype)
        ours, theirs = "blocks.1.mlp.W_out", net.model.layers[1].mlp.down_proj.weight.T
    else:
        sizes = {"vocab_size": 11, "n_positions": 16, "n_embd": 12, "n_layer": 2, "n_head": 3}
        with silence_transformers():
            config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
            net = transformers.GPT2LMHeadModel(config).to(getattr(torch, dtype))
            net.save_pretrained(tmp_path)
        ours, theirs = "blocks.1.mlp.W_out", net.transformer.h[1].mlp.c_proj.weight
    model = load(tmp_path)
    assert model.dtype == ("float64" if dtype == "float64" else "float32")
    assert np.array_equal(model.weights[ours], theirs.detach().double().numpy())
    kind = getattr(torch, model.dtype)
    assert largest_difference(model(TOKENS), logits(tmp_path, TOKENS, kind)) < 3e-5


@pytest.mark.parametrize("field,value", [
    ("rope_parameters", {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}),
    ("rope_parameters", {"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
    ("rope_scaling", {"type": "linear", "factor": 2.0}), ("hidden_act", "tanh"),
    ("architectures", ["LlamaForSequenceClassification"]), ("quantization_config", {"bits": 4}),
    ("auto_map", {"AutoModel": "evil.py"}), ("sliding_window", 4), ("head_dim", 3),
    ("num_key_value_heads", 4), ("hidden_size", 16), ("num_hidden_layers", 3),
    ("num_hidden_layers", -1), ("hidden_size", "x"), ("rms_norm_eps", None),
    ("attention_bias", True), ("tie_word_embeddings", True), ("model_type", "mistral"),
])  # fmt: skip
def test_a_foreign_field_is_refused(field, value, tmp_path):
    write(tmp_path)
    file = tmp_path / "config.json"
    fields = json.loads(file.read_text())
    file.write_text(json.dumps(fields | {field: value}))
    names = {
        "hidden_size", "num_hidden_layers", "attention_bias", "tie_word_embeddings",
        "rms_norm_eps",
    }  # fmt: skip
    if field == "tie_word_embeddings":  # the file's head is unused, as in transformers
        assert read_folder(tmp_path).config.tied
        return
    with pytest.raises(GlassformerError) as e:
        load(tmp_path)
    assert str(tmp_path) in str(e.value) and (field in str(e.value) or field in names)


def test_older_folders(tmp_path):
    """With rope_theta as a field and inverse frequencies among the arrays."""
    net = write(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    del fields["rope_parameters"], fields["head_dim"]
    fields |= {"rope_theta": 10000.0, "rope_scaling": None}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    held = {n: p.contiguous() for n, p in net.state_dict().items()}
    held["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(1)
    save_file(held, tmp_path / "model.safetensors")
    assert (
        largest_difference(
            read_folder(tmp_path)(TOKENS), net(torch.as_tensor(TOKENS)).logits.detach()
        )
        < 3e-5
    )

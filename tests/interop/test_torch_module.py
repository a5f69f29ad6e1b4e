"""The PyTorch file: one for every config, the same logits as ours in the same float type,
readable and alone.
"""

import ast
import itertools
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from cases import CASES, few
from glassformer import Vocabulary, load, run
from glassformer.interop import export_checked, parity
from glassformer.interop.torch_module import MAX_INLINE_NUMBERS, TorchBridge, from_torch
from glassformer.interop.torch_source import module_source
from helpers import largest_difference, raises, random_model

torch = pytest.importorskip("torch")


def module(path):
    import importlib.util

    spec = importlib.util.spec_from_file_location("exported", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("ref,text,output", few(CASES))
def test_every_program_generates_the_same(ref, text, output, tmp_path):
    model = load(ref)
    done = export_checked(model, "torch", tmp_path / "x.py")
    assert done.differ == 0 and (done.parity < 1e-4 or model.dtype == "float32"), done
    made, ours = module(tmp_path / "x.py"), run(model, text)
    tokens = made.encode(model.vocabulary.decode(ours.prompt))
    assert tokens == ours.prompt
    n = len(ours.tokens) - len(tokens)
    assert made.generate(made.load(), tokens, n) == ours.tokens[len(tokens) :]
    assert made.decode(ours.tokens) == model.vocabulary.decode(ours.tokens)
    assert made.load().state_dict().keys() == dict(model.weights).keys()


CHOICES = {
    "norm": ["layer", "rms", "none"], "norm_first": [True, False], "qk_norm": [True, False],
    "mask": ["causal", "none"],
    "positions": ["learned", "none", "sinusoidal", "rotary", "alibi"], "tied": [True, False],
    "scale": [0.0, 0.3],
    "activation": ["relu", "gelu", "gelu_new", "silu"], "gated": [True, False], "extras": [True,
    False],
    "d_mlp": [5, 0], "n_layers": [2, 1, 0], "d_head": [3, 4, 1],
}  # fmt: skip


def spread(n):
    """Return n configs in which every pair of choices is likely."""
    rng = np.random.default_rng(0)
    return [{k: v[rng.integers(len(v))] for k, v in CHOICES.items()} for _ in range(n)]


def check_twin(choices, tmp_path):
    model = random_model(1, **choices)
    path = tmp_path / "x.py"
    TorchBridge().write(model, path)
    tokens = parity.parity_batch(model).tokens[:64]
    assert largest_difference(model(tokens), TorchBridge().logits(path, tokens)) < 1e-9
    net = module(path).load()
    assert all(p.dtype == torch.float64 for p in net.parameters())
    assert {n: tuple(p.shape) for n, p in net.state_dict().items()} == {
        n: w.shape for n, w in model.weights.items()
    }


@pytest.mark.parametrize("choices", spread(60), ids=str)
@pytest.mark.some(4)
def test_every_config_has_its_module(choices, tmp_path):
    check_twin(choices, tmp_path)


@pytest.mark.slow
def test_many_combinations_of_components(tmp_path):
    names = [
        "norm",
        "norm_first",
        "qk_norm",
        "mask",
        "positions",
        "tied",
        "activation",
        "gated",
        "extras",
    ]
    every = itertools.product(*(CHOICES[n] for n in names))
    for i, values in enumerate(
        itertools.islice(every, 0, None, 11)
    ):  # 11 divides none of the numbers of choices
        (tmp_path / str(i)).mkdir()
        check_twin(dict(zip(names, values, strict=True)), tmp_path / str(i))


def test_blocks_may_differ(tmp_path):
    model = random_model(n_layers=3)
    some = {
        n: w
        for n, w in model.weights.items()
        if not n.startswith("blocks.1.mlp") and n != "blocks.2.attn.b_O"
    }
    mixed = replace(model, weights=some)
    done = export_checked(mixed, "torch", tmp_path / "x.py")
    text = (tmp_path / "x.py").read_text()
    assert done.parity < 1e-9 and "nn.ModuleList([BlockA(), BlockB(), BlockC()])" in text


def test_large_models_have_a_weights_file(tmp_path):
    model = random_model(d_model=16, d_mlp=64)
    assert sum(w.size for w in model.weights.values()) > MAX_INLINE_NUMBERS
    assert "x.pt" in export_checked(model, "torch", tmp_path / "x.py").notes[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.pt", "x.py"]
    stored = torch.load(tmp_path / "x.pt", weights_only=True)
    assert all(np.array_equal(stored[n].numpy(), w) for n, w in model.weights.items())


def test_numbers_in_the_file_are_exact(tmp_path):
    model = load("addition:digits=10")
    export_checked(model, "torch", tmp_path / "x.py")
    state = module(tmp_path / "x.py").load().state_dict()
    assert all(np.array_equal(state[n].numpy(), w) for n, w in model.weights.items())


@pytest.mark.slow
def test_the_file_runs_alone(tmp_path):
    export_checked(load("reverse"), "torch", tmp_path / "reverse.py")
    imports = re.findall(
        r"^(?:import|from) (\w+)", (tmp_path / "reverse.py").read_text(), re.MULTILINE
    )
    assert set(imports) <= {"re", "sys", "math", "pathlib", "torch"}
    words = [sys.executable, "-I", "reverse.py", "12345=", "99120=", "12x45="]
    generation = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert generation.stdout == "54321<EOS>\n02199<EOS>\n"
    assert generation.returncode and "'12x45='" in generation.stderr


def test_the_file_has_only_used_code():
    plain = module_source(
        random_model(extras=False, d_mlp=0, norm="none", positions="none", mask="none"), True
    )
    assert not re.search(
        r"layer_norm|rms_norm|rotate|SLOPES|masked_fill|mlp|bias|b_Q|positions\(|math", plain
    )
    assert len(plain.partition("NUMBERS =")[0].splitlines()) < 120


def test_a_trained_copy_comes_back(tmp_path):
    model = load("reverse")
    export_checked(model, "torch", tmp_path / "x.py")
    net = module(tmp_path / "x.py").load()
    with torch.no_grad():
        net.embed.W_E.mul_(1.5)
    again = from_torch(net.state_dict(), model.config, model.vocabulary, model.task)
    assert np.array_equal(again.weights["embed.W_E"], 1.5 * model.weights["embed.W_E"])
    tokens = parity.parity_batch(model).tokens
    with torch.no_grad():
        assert largest_difference(again(tokens), net(torch.as_tensor(tokens)).numpy()) < 1e-12
    with raises("bad_argument", "lm_head"):
        from_torch(dict(net.state_dict()) | {"lm_head": torch.zeros(3)}, model.config)


def test_names_cannot_become_code():
    evil = '"""\nimport os #'
    model = replace(
        random_model(d_vocab=2),
        vocabulary=Vocabulary([evil, "'\\"]),
        provenance={"ref": evil},
        task=evil,
    )
    tree = ast.parse(module_source(model, True))
    assert "os" not in [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]


def test_refusals(tmp_path):
    with raises("bad_argument", "x.txt", ".py"):
        export_checked(load("reverse"), "torch", tmp_path / "x.txt")
    model = random_model(n_layers=0)
    broken = replace(model, weights=dict(model.weights) | {"ln_final.w": np.full(4, np.inf)})
    with raises("unsupported", "ln_final.w"):
        export_checked(broken, "torch", tmp_path / "x.py")
    assert not list(tmp_path.iterdir())


def test_no_other_file_is_left(monkeypatch, tmp_path):
    """Also without the test setting against bytecode files."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    export_checked(load("reverse"), "torch", tmp_path / "a.py")
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]

"""Every hand-made model in every format: exported with equal logits, or refused by field."""

from dataclasses import replace

import numpy as np
import pytest

from cases import CASES, QUICK
from glassformer import list, load
from glassformer.interop import export_checked
from glassformer.interop.folder import read_folder
from glassformer.interop.transformer_lens import TransformerLensBridge
from helpers import largest_difference, raises, random_model

FORMATS = {"torch": "x.py", "transformer-lens": "x", "gpt2": "x", "onnx": "x.onnx"}
REFS = [*dict.fromkeys([ref for ref, _, _ in CASES] + list("programs"))]
NO_NORM = {
    "modular-addition", "modular-addition:operation=-", "adder-36", "adder-hinge", "adder-least",
    "adder-coupled",
}  # fmt: skip
REFUSED = {("gpt2", ref): "norm" for ref in NO_NORM} | {
    ("transformer-lens", "adder-36"): "positions"
}
# Models that need float64.
WIDE = {
    "addition", "addition:digits=2", "addition:digits=2,variant=book", "addition:digits=10",
    "addition:digits=2,padding=none", "multiplication", "multiplication:digits=2", "sort-digits",
    "adder-prefix", "adder-36", "adder-coupled",
}  # fmt: skip
# Models whose logits change by more than 1e-4 with the order of sums.
NOISY = {"addition:digits=3,dtype=float32", "adder-prefix"}


@pytest.mark.parametrize(
    "ref", [pytest.param(r, marks=() if r in QUICK else pytest.mark.slow) for r in REFS]
)
@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.some(3)
def test_every_program_in_every_format(to, ref, tmp_path):
    model, path = load(ref), tmp_path / FORMATS[to]
    if field := REFUSED.get((to, ref)):
        with raises("unsupported", f"export to {to}", field, "torch"):
            export_checked(model, to, path)
        assert not [*tmp_path.iterdir()]
        return
    done = export_checked(model, to, path)
    assert not done.differ and done.parity <= (1e-2 if ref in NOISY else 1e-4)
    wanted = model.dtype if to == "torch" else "float64" if ref in WIDE else "float32"
    assert done.dtype == wanted
    if wanted == "float64" and to != "torch":
        assert "float32" in done.why
    back = {"gpt2": read_folder, "transformer-lens": TransformerLensBridge().read}.get(to)
    if back:
        assert back(path).dtype == wanted


@pytest.mark.parametrize("choices", [{}, {"norm": "rms"}, {"norm": "none"}, {"extras": True}])
def test_float64_is_float64_in_transformer_lens(choices, tmp_path):
    """No norm or activation is computed in float32."""
    given = {"extras": False, "gated": False, "activation": "silu"} | choices
    model = random_model(**given)
    if given["extras"]:
        kept = {n: w for n, w in model.weights.items() if "_norm" not in n}
        model = replace(model, weights=kept)
    tokens = np.random.default_rng(0).integers(0, model.config.d_vocab, (5, model.config.n_ctx))
    bridge = TransformerLensBridge()
    bridge.write(model, tmp_path / "x")
    theirs = bridge.logits(tmp_path / "x", tokens)
    assert theirs.dtype == np.float64
    assert largest_difference(model(tokens), theirs) < 1e-13


def test_all_refused_programs_exist():
    """Keeps the table above up to date."""
    assert len(REFS) >= 36 and not {ref for _, ref in REFUSED} - {*REFS}


@pytest.mark.parametrize(
    "to,choices,field",
    [
        ("transformer-lens", {"norm": "rms"}, "(norm)"),
        ("transformer-lens", {"positions": "rotary"}, "(positions)"),
        ("onnx", {"activation": "gelu"}, "(activation)"),
    ],
)
def test_computations_that_are_always_float32_are_refused_by_field(to, choices, field, tmp_path):
    model = random_model(extras=False, **choices)
    if choices.get("norm"):
        model = replace(model, weights=dict(model.weights) | {"ln_final.w": np.full(4, 2.0)})
    steep = dict(model.weights) | {"unembed.W_U": model.weights["unembed.W_U"] * 1e300}
    model = replace(model, weights=steep)
    with raises("unsupported", "3.4e38", field, "torch"):
        export_checked(model, to, tmp_path / FORMATS[to])
    assert not [*tmp_path.iterdir()]

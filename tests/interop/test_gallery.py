"""Every hand-made model in every format: written and the same there, or refused for a reason that
names what the format has no place for.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cases import CASES, QUICK
from glassformer import GlassformerError, list, load
from glassformer.interop import export_checked
from glassformer.interop.gpt2_read import read_gpt2
from glassformer.interop.transformer_lens import (
    TransformerLensBridge,
    build_bridge,
    config_fields,
    state_dict,
)
from helpers import largest_difference, random_model

FORMATS = {"torch": "x.py", "transformer-lens": "x", "gpt2": "x", "onnx": "x.onnx"}
REFS = [*dict.fromkeys([ref for ref, _, _ in CASES] + list("programs"))]
NO_NORM = {
    "modular-addition", "modular-addition:operation=-", "adder-36", "adder-hinge", "adder-least",
    "adder-coupled",
}  # fmt: skip
REFUSED = {("gpt2", ref): r"this model has no norm \(norm=none\)" for ref in NO_NORM} | {
    ("transformer-lens", "adder-36"): r"alibi positions \(positions\)"
}
# That float32 gets wrong, or off by more than 1e-4; all else is written in float32.
WIDE = {
    "addition", "addition:digits=2", "addition:digits=2,variant=book", "addition:digits=10",
    "addition:digits=2,padding=none", "multiplication", "multiplication:digits=2", "sort-digits",
    "adder-prefix", "adder-36", "adder-coupled",
}  # fmt: skip
# Whose logits depend on the order of sums alone by as much as that, in float32 or in float64.
NOISY = {"addition:digits=3,dtype=float32", "adder-prefix"}


@pytest.mark.parametrize(
    "ref", [pytest.param(r, marks=() if r in QUICK else pytest.mark.slow) for r in REFS]
)
@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.some(3)
def test_every_program_in_every_format(to, ref, tmp_path):
    model, path = load(ref), tmp_path / FORMATS[to]
    if reason := REFUSED.get((to, ref)):
        with pytest.raises(GlassformerError, match=f"export to {to} — .*{reason}.* torch"):
            export_checked(model, to, path)
        assert not [*tmp_path.iterdir()]
        return
    done = export_checked(model, to, path)
    assert not done.differ and done.parity <= (1e-2 if ref in NOISY else 1e-4)
    wanted = model.dtype if to == "torch" else "float64" if ref in WIDE else "float32"
    assert done.dtype == wanted
    if wanted == "float64" and to != "torch":
        assert done.why.startswith("float32 cannot carry this model: ")
    back = {"gpt2": read_gpt2, "transformer-lens": TransformerLensBridge().read}.get(to)
    if back:
        assert back(path).dtype == wanted


@pytest.mark.parametrize("choices", [{}, {"norm": "rms"}, {"norm": "none"}, {"extras": True}])
def test_float64_is_float64_in_transformer_lens(choices):
    """No norm and no activation on the way is float32."""
    given = {"extras": False, "gated": False, "activation": "silu"} | choices
    model = random_model(**given)
    if given["extras"]:
        kept = {n: w for n, w in model.weights.items() if "_norm" not in n}
        model = replace(model, weights=kept)
    tokens = np.random.default_rng(0).integers(0, model.config.d_vocab, (5, model.config.n_ctx))
    with torch.no_grad():
        theirs = build_bridge(config_fields(model), state_dict(model))(torch.tensor(tokens))
    assert theirs.dtype == torch.float64
    assert largest_difference(model(tokens), theirs) < 1e-13


def test_there_are_no_other_refusals():
    """So that the table above is looked at when a program is added."""
    assert len(REFS) >= 36 and not {ref for _, ref in REFUSED} - {*REFS}


@pytest.mark.parametrize(
    "to,choices,field",
    [
        ("transformer-lens", {"norm": "rms"}, r"RMS norms with gains in float32 \(norm\)"),
        ("transformer-lens", {"positions": "rotary"}, r"by float32 angles \(positions\)"),
        ("onnx", {"activation": "gelu"}, r"no gelu in float64 \(activation\)"),
    ],
)
def test_what_a_library_does_in_float32_alone_is_refused_by_its_field(to, choices, field, tmp_path):
    model = random_model(extras=False, **choices)
    if choices.get("norm"):
        model = replace(model, weights=dict(model.weights) | {"ln_final.w": np.full(4, 2.0)})
    steep = dict(model.weights) | {"unembed.W_U": model.weights["unembed.W_U"] * 1e300}
    model = replace(model, weights=steep)
    with pytest.raises(GlassformerError, match=f"float32 ends at 3.4e38; .*{field}.* torch"):
        export_checked(model, to, tmp_path / FORMATS[to])
    assert not [*tmp_path.iterdir()]

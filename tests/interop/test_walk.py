"""A workflow in TransformerLens: export a model, run it, patch it, and score the circuit found."""

import json
import subprocess
import sys

import pytest

import glassformer as gf
from glassformer.circuits.edges import measure_ground_truth
from glassformer.circuits.grading import score_edges

REF = "addition:order=ones"
# In the folder, without this package: what a colleague does who was handed it. Path patching: an
# edge is claimed where the writer's activation of another sum, let through to this reader alone,
# moves what the reader makes of it.
THEIRS = """
import json, sys
sys.modules["glassformer"] = None  # importing it would fail
import torch
from load import model

torch.set_grad_enabled(False)
told = {
    "tokens": model.to_tokens("127+458=").tolist(),
    "text": model.to_string(model.to_tokens("127+458=")[0]),
    "next": model.to_string(model("127+458=")[0, -1].argmax()),
    "generated": model.generate("127+458=", max_new_tokens=4, do_sample=False, verbose=False),
}
pairs = [
    ("127+458=5850", "127+451=8750"), ("999+001=0001", "998+001=9990"),
    ("120+340=0640", "129+349=8740"),
]
MLP, HEADS = "blocks.0.hook_mlp_out", "blocks.0.attn.hook_z"

def runs(clean, other):
    here, there = model.to_tokens(clean), model.run_with_cache(model.to_tokens(other))[1]
    logits, cache = model.run_with_cache(here)
    def with_hooks(*hooks):
        seen = {}
        def keep(value, hook):
            seen["mlp"] = value.clone()
        got = model.run_with_hooks(here, fwd_hooks=[*hooks, (MLP, keep)])
        return (got - logits).abs().max().item(), (seen["mlp"] - cache[MLP]).abs().max().item()
    def head(h):
        def put(z, hook):
            z = z.clone()
            z[:, :, h] = there[HEADS][:, :, h]
            return z
        return HEADS, put
    frozen = MLP, lambda value, hook: cache[MLP]
    other_mlp = MLP, lambda value, hook: there[MLP]
    for h in (0, 1):
        yield (f"head 0.{h}", "unembed"), with_hooks(head(h), frozen)[0]
        yield (f"head 0.{h}", "mlp 0"), with_hooks(head(h))[1]
    yield ("mlp 0", "unembed"), with_hooks(other_mlp)[0]
    yield ("mlp 0", "mlp 0"), with_hooks(head(0), frozen)[1]  # no path: held where it was

moved = {}
for pair in pairs:
    for edge, by in runs(*pair):
        moved[edge] = max(by, moved.get(edge, 0))
told["claimed"] = [edge for edge, by in moved.items() if by > 1e-3]
ones = model.to_tokens("127+458=")
brought = model.run_with_cache(model.to_tokens("127+451="))[1][HEADS]
def another_column(z, hook):
    z = z.clone()
    z[:, -1, 0] = brought[:, -1, 0]
    return z
says = lambda logits: model.to_string(logits[0, -1].argmax())
told["ones"] = [
    says(model(ones)), says(model.run_with_hooks(ones, fwd_hooks=[(HEADS, another_column)]))
]
print(json.dumps(told))
"""


@pytest.mark.slow
def test_the_walk_of_a_researcher(tmp_path, call):
    pytest.importorskip("transformer_lens")
    folder = tmp_path / "adder"
    status, out, err = call("export", REF, "--to", "transformer-lens", "--out", folder)
    assert status == 0 and "all greedy tokens equal" in out, out + err
    (folder / "theirs.py").write_text(THEIRS)
    done = subprocess.run(
        [sys.executable, "theirs.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    data = json.loads(done.stdout.splitlines()[-1])

    model = gf.load(REF)
    assert data["tokens"] == [model.vocabulary.encode("127+458=")]
    assert (data["text"], data["next"], data["generated"]) == ("127+458=", "5", "127+458=5850")
    assert data["ones"] == ["5", "8"], "of 7 + 8, and of 7 + 1: head 0.0 brings the column"

    known = measure_ground_truth(model, gf.load_task(model))
    match = score_edges(known, data["claimed"])
    assert match.precision == 1.0 and match.right == 5
    looked_at = [e for e in match.missed if not e[0].endswith("embed")]
    assert not looked_at, "edges between parts that were patched"

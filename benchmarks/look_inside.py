"""Compare `record` with TransformerLens' `run_with_cache`: time to cache, and to a first cache.

The peer (transformer-lens 4.x) has the same weights, exported by the bridge, and the same 10,000
sums (and 1,000), in float32 on one thread. It caches our hook names and, measured separately, all
of its own, many of which are aliases. Ours runs on PyTorch, like the peer, and on NumPy. Caching is
measured in processor time, which other processes disturb less. The start is wall-clock time of a
fresh process, imports included, until the cache of one input exists.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import medians  # isort: skip - it sets one thread

import numpy as np
import torch

from glassformer import load, load_task, record
from glassformer.interop import export_checked
from glassformer.interop.transformer_lens import to_transformer_lens

ROWS, FEW, RUNS, STARTS = 10_000, 1_000, 9, 5
OURS = (
    "import glassformer as gf; logits, cache = gf.record(gf.load({ref!r}), [{row}]); assert "
    "len(cache) > 20"
)
THEIRS = (
    "import torch, load; logits, cache = load.model.run_with_cache(torch.tensor([{row}])); assert "
    "len(cache) > 20"
)


def caching(ref, rows):
    """Return seconds to cache `rows` inputs (our PyTorch, our NumPy, theirs) and the name count."""
    model = load(ref)
    task = load_task(model)
    tokens = task.batch(task.sample(rows, np.random.default_rng(0)))[0][:, :-1]
    fast, plain, bridge = (
        model.torch("float32"),
        model.astype("float32"),
        to_transformer_lens(model),
    )
    inputs = torch.tensor(tokens)
    names = list(record(plain, tokens[:1])[1])
    with torch.no_grad():
        theirs = bridge.run_with_cache(inputs[:100], names_filter=names)[1]
        ours = record(fast, inputs[:100])[1]
        assert set(names) <= set(theirs.keys()) and set(names) == set(ours)
        last = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
        assert torch.allclose(ours[last], theirs[last], atol=1e-4)
        calls = (
            lambda: record(fast, inputs),
            lambda: record(plain, tokens),
            lambda: bridge.run_with_cache(inputs, names_filter=names),
            lambda: bridge.run_with_cache(inputs),
        )
        return *medians(RUNS, *calls), len(names)


def starting(ref):
    """Return seconds from the start of a process to one input's cache: ours, theirs."""
    model = load(ref)
    row = load_task(model).batch(np.zeros((1, 2), dtype=np.int64))[0][0, :-1].tolist()
    with tempfile.TemporaryDirectory() as folder:
        export_checked(model, "transformer-lens", Path(folder) / "exported")

        def run(code):
            subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(folder) / "exported")

        ours, theirs = OURS.format(ref=ref, row=row), THEIRS.format(row=row)
        return medians(STARTS, lambda: run(ours), lambda: run(theirs), clock=time.perf_counter)


def main():
    ref = sys.argv[1] if len(sys.argv) > 1 else "adder-3.safetensors"
    ours, on_numpy, theirs, all_of_theirs, names = caching(ref, ROWS)
    few = dict(zip(("ours_torch_s", "ours_numpy_s", "peer_s"), caching(ref, FEW), strict=False))
    start, their_start = starting(str(Path(ref).resolve()) if Path(ref).exists() else ref)
    print(json.dumps({
        "rows": ROWS, "names": names, "ours_torch_s": ours, "ours_numpy_s": on_numpy,
        "peer_s": theirs,
        "peer_all_its_names_s": all_of_theirs, "ratio": theirs / ours,
        "ratio_numpy": theirs / on_numpy,
        "few": {"rows": FEW, **few, "ratio_numpy": few["peer_s"] / few["ours_numpy_s"]},
        "start_ours_s": start, "start_peer_s": their_start, "start_ratio": their_start / start,
    }))  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

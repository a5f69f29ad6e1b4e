"""Attribution by gradients: estimate the recovered share of each patch without running it.

Results are in the units of patch.py. An activation h that changes from corrupted to clean by δ
changes the logit difference d by

    to first order (attribution patching)     δ · ∂d/∂h at the corrupted h
    integrated (integrated gradients)         δ · the mean of ∂d/∂h on the line between both

The first takes one backward pass for all activations. It is exact where the logits are linear in h,
and 0 where a softmax is saturated or a ReLU is off. The second takes `steps` passes per layer, and
the values of an activation sum to the recovered share of patching all of it. Needs PyTorch.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ...core.backend import Array
from ...core.hooks import record
from ...core.model import Model
from ...utils.errors import value_error
from .patch import Indices, PatchGrid, PatchingRun, grid_setup, patch_hook

MAX_STEPS = 1_000


def attribute(
    model: Model, clean: Array, corrupted: Array, name: str,
    positions: Indices = None, heads: Indices = None, at: int = -1, steps: int = 0,
) -> float:  # fmt: skip
    """Estimate `patch(model, clean, corrupted, name, …).recovered`, as `gf.attribute` documents.

    Raises:
        GlassformerError: The component spans several activations, or an argument is out of range.
    """
    run = PatchingRun(model, clean, corrupted, at)
    hook = patch_hook(run.model, run.cache, [name], positions, heads)
    start, changes = record(run.model, run.corrupted)[1], dict[str, Any]()
    for activation, value in start.items():
        change = _subtract(hook(activation, value), value)
        if change.any():
            changes[activation] = change
    if len(changes) > 1:
        raise value_error("attribution:", "a component within one activation", name)
    return float(sum(x.sum() for x in _recovered_shares(run, start, changes, steps).values()))


def attribute_positions(
    model: Model, clean: Array, corrupted: Array, activation: str = "resid_pre", at: int = -1,
    steps: int = 0,
) -> PatchGrid:  # fmt: skip
    """Estimate `patch_positions` by gradients: [L,T]; `steps` as in `attribute`."""
    run, hooks, grid = grid_setup(model, clean, corrupted, activation, at)
    start = record(run.model, run.corrupted)[1]
    changes = {hook: _subtract(run.cache[hook], start[hook]) for hook in hooks}
    shares = _recovered_shares(run, start, changes, steps).values()
    summed_axes = (0, 1, 3) if activation == "heads" else (0, 2)  # of B T H K or B T D
    return replace(grid, values=np.array([x.sum(summed_axes) for x in shares]))


def attribute_heads(
    model: Model, clean: Array, corrupted: Array, at: int = -1, steps: int = 0
) -> PatchGrid:
    """Estimate `patch_heads` by gradients: [L,H]; `steps` as in `attribute`."""
    return attribute_positions(model, clean, corrupted, "heads", at, steps)


def _subtract(a: Array, b: Array) -> Any:
    """Return a − b, with 0 where both are −∞ (masked scores)."""
    return np.subtract(a, b, where=a != b, out=np.zeros(b.shape, b.dtype))


def _recovered_shares(
    run: PatchingRun, start: Any, changes: dict[str, Any], steps: int
) -> dict[str, Any]:
    """Return activation -> change times gradient as shares of the logit difference, elementwise."""
    if not 0 <= steps <= MAX_STEPS:
        raise value_error("steps:", f"a number from 0 to {MAX_STEPS:,}", steps)
    model = run.model.torch()
    import torch

    rows, (a, b) = np.arange(len(run.corrupted)), run.top_tokens
    clean, corrupted = (x[rows, a] - x[rows, b] for x in run.logits)
    tokens, total = torch.as_tensor(run.corrupted), (clean - corrupted).sum()

    def gradients(hook: Any, inputs: dict[str, Any]) -> list[Any]:
        """Return the gradients of d for `inputs`, a list that the hook may fill."""
        logits = model(tokens, hook=hook)[:, run.at]
        d = (logits[rows, a] - logits[rows, b]).sum()
        grads = torch.autograd.grad(d, list(inputs.values()), allow_unused=True)
        return [0.0 if x is None else x.numpy() for x in grads]

    if not steps:
        leaves: dict[str, Any] = {}

        def keep(name: str, value: Any) -> Any:
            value = value.requires_grad_() if name == "hook_embed" else value
            if name in changes:
                leaves[name] = value
            return value

        slopes = dict(zip(leaves, gradients(keep, leaves), strict=True)) if changes else {}
        return {name: changes[name] * slopes[name] / total for name in changes}
    shares = {}
    points, widths = np.polynomial.legendre.leggauss(steps)
    for name, change in changes.items():
        mean: Any = 0.0
        for point, width in zip((1 + points) / 2, widths / 2, strict=True):
            between = np.asarray(start[name] + point * change, dtype=model.dtype)
            leaf = {name: torch.tensor(between, requires_grad=True)}
            mean = mean + width * gradients(lambda n, v, leaf=leaf: leaf.get(n, v), leaf)[0]
        shares[name] = change * mean / total
    return shares

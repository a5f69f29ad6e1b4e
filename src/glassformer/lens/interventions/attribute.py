"""Attribution by gradients: what patching would recover, foretold without running each patch.

    attribute(model, clean, corrupted, "head 0.1")                 of one patch, to first order
    attribute(model, clean, corrupted, "head 0.1", steps=16)       the same, integrated
    attribute_positions(model, clean, corrupted).values            every layer and position
    attribute_heads(model, clean, corrupted).values                every layer and head

All are in the units of patch.py: shares of d clean − d corrupted. An activation h that goes from
corrupted to clean, by δ, moves d by

    to first order (attribution patching)     δ · ∂d/∂h where h is corrupted
    integrated (integrated gradients)         δ · the mean of ∂d/∂h on the straight way there

The first takes one backward pass for all places of a model, and is exact where the way from h to
the logits is linear; a softmax that has decided, or a relu that is off, has no slope, and then it
says 0. The second takes `steps` passes a layer, and its places add up to what patching all of them
at once recovers; a place alone need not be what patching it alone does. Needs PyTorch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.backend import Array
from ...core.hooks import record
from ...core.model import Model
from ...utils.errors import GlassformerError
from .patch import Indices, PatchGrid, PatchingRun, head_grid, patch_hook, position_grid

MAX_STEPS = 1_000  # at most


def attribute(
    model: Model, clean: Array, corrupted: Array, name: str,
    positions: Indices = None, heads: Indices = None, at: int = -1, steps: int = 0,
) -> float:  # fmt: skip
    """What `patch(model, clean, corrupted, name, …).recovered` is by gradients.

    `name`: an activation, or a part that is in one. `steps`: 0 to first order, else integrated
    over so many points.
    """
    run = PatchingRun(model, clean, corrupted, at)
    tap = patch_hook(run.model, run.cache, [name], positions, heads)
    start, changes = record(run.model, run.corrupted)[1], dict[str, Any]()
    for hook, value in start.items():
        change = _subtract(tap(hook, value), value)
        if change.any():
            changes[hook] = change
    if len(changes) > 1:
        several = f"in {len(changes)} activations, which depend on each other"
        raise GlassformerError(f"attribution of {name} — it is {several}; name one of them")
    return float(sum(x.sum() for x in _recovered_shares(run, start, changes, steps).values()))


def attribute_positions(
    model: Model, clean: Array, corrupted: Array, activation: str = "resid_pre", at: int = -1,
    steps: int = 0,
) -> PatchGrid:  # fmt: skip
    """As `patch_positions`: the stream, or what attention or the MLP wrote, place by place: [L,T].

    >>> attribute_positions(model, clean, corrupted, "mlp_out", steps=16)
    """
    run, hooks, rows, columns = position_grid(model, clean, corrupted, activation, at)
    return PatchGrid(activation, rows, columns, _attribution_grid(run, hooks, steps, kept_axis=1))


def attribute_heads(
    model: Model, clean: Array, corrupted: Array, at: int = -1, steps: int = 0
) -> PatchGrid:
    """As `patch_heads`: what each head read, at all positions together: [L,H]."""
    run, hooks, rows, columns = head_grid(model, clean, corrupted, at)
    return PatchGrid("heads", rows, columns, _attribution_grid(run, hooks, steps, kept_axis=2))


def _attribution_grid(run: PatchingRun, hooks: Sequence[str], steps: int, kept_axis: int) -> Any:
    """The shares of each activation, summed over all axes but one: [hooks, that axis]."""
    start = record(run.model, run.corrupted)[1]
    changes = {hook: _subtract(run.cache[hook], start[hook]) for hook in hooks}
    shares = _recovered_shares(run, start, changes, steps)
    each = [x.sum(tuple(i for i in range(x.ndim) if i != kept_axis)) for x in shares.values()]
    return np.array(each)


def _subtract(a: Array, b: Array) -> Any:
    """a − b; 0 where both are −∞, as scores of what nobody sees."""
    return np.subtract(a, b, where=a != b, out=np.zeros(b.shape, b.dtype))


def _recovered_shares(
    run: PatchingRun, start: Any, changes: dict[str, Any], steps: int
) -> dict[str, Any]:
    """Activation -> its change times the gradient there, as shares: the shape of the activation."""
    if not 0 <= steps <= MAX_STEPS:
        raise GlassformerError(f"attribution — steps must be from 0 to {MAX_STEPS:,}, got {steps}")
    model = run.model.torch()
    import torch

    rows, (a, b) = np.arange(len(run.corrupted)), run.top_tokens
    clean, corrupted = (x[rows, a] - x[rows, b] for x in run.logits)
    tokens, whole = torch.as_tensor(run.corrupted), (clean - corrupted).sum()

    def slopes(tap: Any, inputs: dict[str, Any]) -> list[Any]:
        """Gradients of d at what the tap has put into `inputs`."""
        logits = model(tokens, hook=tap)[:, run.at]
        d = (logits[rows, a] - logits[rows, b]).sum()
        found = torch.autograd.grad(d, list(inputs.values()), allow_unused=True)
        return [0.0 if x is None else x.numpy() for x in found]

    if not steps:  # all at once
        seen: dict[str, Any] = {}

        def look(name: str, value: Any) -> Any:
            value = value.requires_grad_() if name == "hook_embed" else value  # where it begins
            if name in changes:
                seen[name] = value
            return value

        each = dict(zip(seen, slopes(look, seen), strict=True)) if changes else {}
        return {name: changes[name] * each[name] / whole for name in changes}
    shares = {}
    points, widths = np.polynomial.legendre.leggauss(steps)
    for name, change in changes.items():
        mean: Any = 0.0
        for point, width in zip((1 + points) / 2, widths / 2, strict=True):
            way = np.asarray(start[name] + point * change, dtype=model.dtype)
            here = torch.tensor(way, requires_grad=True)
            there = {name: here}
            mean = mean + width * slopes(lambda n, v, t=there: t.get(n, v), there)[0]
        shares[name] = change * mean / whole
    return shares

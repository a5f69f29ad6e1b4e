"""Clock or pizza? Two numbers that tell apart how a model adds angles.

A clock multiplies the waves of a and b: the right logit is as large whatever a − b is. A pizza adds
them; the sum is shorter the further a and b are apart, and many frequencies make up for it.
`distance_irrelevance` sees that in the logits. `gradient_symmetricity` asks whether a and b enter
in the same way: if attention only ever adds them up, the gradients by the two embeddings are equal.
A pizza's are; but a clock can be built that way as well.
"""

from typing import Any

import numpy as np

from ...core.model import Model
from ...tasks.base import Task
from ...utils.errors import GlassformerError

GRADIENT_TRIPLES = 2_000  # (a, b, c) drawn for the gradients


def distance_irrelevance(right: Any, operation: str = "+") -> float:
    """How little the right logit [p,p] depends on what the answer does not; 1: not at all.

    The mean spread among pairs of one distance a − b (for a − b: of one sum), as a share of the
    spread among all.
    """
    p = len(right)
    a, b = np.indices((p, p))
    spread = float(right.std())
    if spread <= 1e-9 * float(np.abs(right).max()):
        return 1.0  # the same for all pairs
    distance = (a - b if operation == "+" else a + b) % p
    by_distance = right.ravel()[np.argsort(distance.ravel(), kind="stable")]
    return float(by_distance.reshape(p, p).std(1).mean() / spread)


def gradient_symmetricity(
    model: Model, task: Task, triples: int = GRADIENT_TRIPLES, seed: int = 0
) -> float:
    """Mean cosine of a logit's gradients by the embeddings of a and of b, over random (a, b, c).

    1 if the two embeddings only ever enter as their sum, as with attention that does not choose.
    Needs PyTorch.
    """
    try:
        import torch
    except ModuleNotFoundError:
        what = "needs PyTorch: pip install 'glassformer[torch]'"
        raise GlassformerError(f"gradient symmetricity — {what}") from None
    model, p, _ = check_modular(model, task)
    drawn = np.random.default_rng(seed).integers(0, p, (triples, 3))
    tokens = torch.from_numpy(np.ascontiguousarray(task.batch(drawn[:, :2])[0][:, :-1]))
    leaves = []

    def watch(name: str, value: Any) -> Any:
        if name == "hook_embed":
            leaves.append(value.detach().requires_grad_())
            return leaves[0]
        return value

    with torch.enable_grad():
        logits = model.torch("float64")(tokens, hook=watch, last=1)[:, 0]  # B V
        said = logits.gather(1, torch.from_numpy(drawn[:, 2:])).sum()
        gradient = torch.autograd.grad(said, leaves[0])[0].numpy()  # B T D
    by_a, by_b = gradient[:, 0], gradient[:, -2]
    sizes = np.linalg.norm(by_a, axis=1) * np.linalg.norm(by_b, axis=1)
    moved = sizes > 0  # where every path is shut there is no direction
    return float(((by_a * by_b).sum(1)[moved] / sizes[moved]).mean()) if moved.any() else 0.0


def check_modular(model: Model, task: Task) -> tuple[Model, int, str]:
    """The model as NumPy arrays, p, and + or -; an error if the task is no such addition."""
    if not task.modular:
        expected = "expected the task modular-addition with operation + or -"
        raise GlassformerError(f"{task.ref or type(task).__name__} — {expected}")
    task.require(model.vocabulary)
    return model.numpy(), *task.modular

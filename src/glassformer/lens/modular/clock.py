"""Clock or pizza: two measures of the algorithm by which a model adds angles.

A clock multiplies the waves of a and b, so the right logit does not depend on a − b. A pizza adds
the waves; their sum is shorter for distant a and b, and other frequencies compensate.
`gradient_symmetricity` is 1 if a and b enter only as a sum, as in a pizza and in some clocks.
"""

from typing import Any

import numpy as np

from ...core.model import Model
from ...tasks.base import Task
from ...utils.errors import TORCH_MISSING, GlassformerError

GRADIENT_TRIPLES = 2_000  # number of sampled triples (a, b, c)


def distance_irrelevance(right: Any, operation: str = "+") -> float:
    """Return the independence of the right logit from a − b; 1 means full independence.

    It is the mean standard deviation among pairs with equal a − b, divided by the standard
    deviation over all pairs.
    """
    p = len(right)
    a, b = np.indices((p, p))
    spread = float(right.std())
    if spread <= 1e-9 * float(np.abs(right).max()):
        return 1.0  # all pairs have the same logit
    distance = (a - b if operation == "+" else a + b) % p
    by_distance = right.ravel()[np.argsort(distance.ravel(), kind="stable")]
    return float(by_distance.reshape(p, p).std(1).mean() / spread)


def gradient_symmetricity(
    model: Model, task: Task, triples: int = GRADIENT_TRIPLES, seed: int = 0
) -> float:
    """Return the mean cosine between the gradients of a logit for the embeddings of a and of b.

    Needs PyTorch.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise GlassformerError(f"gradient symmetricity: {TORCH_MISSING}") from None
    model, p, _ = check_modular(model, task)
    sample = np.random.default_rng(seed).integers(0, p, (triples, 3))
    tokens = torch.from_numpy(np.ascontiguousarray(task.batch(sample[:, :2])[0][:, :-1]))
    leaves = []

    def make_leaf(name: str, value: Any) -> Any:
        if name == "hook_embed":
            leaves.append(value.detach().requires_grad_())
            return leaves[0]
        return value

    with torch.enable_grad():
        logits = model.torch("float64")(tokens, hook=make_leaf, last=1)[:, 0]  # B V
        total = logits.gather(1, torch.from_numpy(sample[:, 2:])).sum()
        gradient = torch.autograd.grad(total, leaves[0])[0].numpy()  # B T D
    by_a, by_b = gradient[:, 0], gradient[:, -2]
    sizes = np.linalg.norm(by_a, axis=1) * np.linalg.norm(by_b, axis=1)
    nonzero = sizes > 0
    cosines = (by_a * by_b).sum(1)[nonzero] / sizes[nonzero]
    return float(cosines.mean()) if nonzero.any() else 0.0


def check_modular(model: Model, task: Task) -> tuple[Model, int, str]:
    """Return the model in NumPy, p, and "+" or "-". Raise an error for any other task."""
    if not task.modular:
        name = task.ref or type(task).__name__
        raise GlassformerError(f"task: expected modular-addition with operation + or -, got {name}")
    task.require(model.vocabulary)
    return model.numpy(), *task.modular

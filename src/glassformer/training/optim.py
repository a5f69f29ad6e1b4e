"""Optimizers for ensembles (PyTorch's AdamW, Muon) and learning rate schedules.

AdamW is called as a function, because importing the class loads PyTorch's compiler, which takes a
second. `torch.optim.Muon` updates one matrix at a time; here all matrices of one shape are
orthogonalized together.
"""

import math

import numpy as np
import torch
from torch.optim.adamw import adamw

from ..core.backend import Array
from ..parametrizations.base import is_matrix
from .recipe import Recipe

NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic polynomial by Keller Jordan
LOSS_SMOOTHING = 0.95  # decay of the average loss for schedule=plateau
LOSS_WARMUP_STEPS = 20  # steps until the average reflects a new level


class Optimizer:
    """Optimizer of an ensemble. Its state is a flat dict of tensors with a leading member axis."""

    def __init__(self, theta: dict[str, torch.Tensor], recipe: Recipe) -> None:
        self.theta, self.recipe = theta, recipe
        matrices = [n for n, t in theta.items() if is_matrix(n, tuple(t.shape[1:]))]
        hidden = matrices if recipe.optimizer == "muon" else []
        self.adamw_names = [n for n in theta if n not in hidden]
        # AdamW state: means of the gradients and of their squares, and the number of steps.
        self.mean = {n: torch.zeros_like(theta[n]) for n in self.adamw_names}
        self.square = {n: torch.zeros_like(theta[n]) for n in self.adamw_names}
        # All members share the step count; `ages` counts the steps since a restart.
        self.steps = {n: theta[n].new_zeros((), dtype=torch.float32) for n in self.adamw_names}
        # Muon groups matrices that can be stacked; tall matrices are transposed.
        groups: dict[tuple[int, ...], list[str]] = {}
        for n in hidden:
            groups.setdefault(tuple(sorted(theta[n].shape[-2:])), []).append(n)
        self.groups = list(groups.values())
        zeros = {n: _as_wide(torch.zeros_like(theta[n])) for n in hidden}
        self.momentum = [torch.stack([zeros[n] for n in names], 1) for names in self.groups]
        self.stretch = [  # factor of each update [G,1,1]: max(1, sqrt(outputs / inputs))
            zeros[names[0]]
            .new_tensor([max(1.0, theta[n].shape[-1] / theta[n].shape[-2]) ** 0.5 for n in names])
            .view(-1, 1, 1)
            for names in self.groups
        ]
        slow = theta if recipe.grokfast else {}
        self.slow_gradients = {n: torch.zeros_like(t) for n, t in slow.items()}

    @torch.no_grad()
    def step(
        self, gradients: dict[str, torch.Tensor], rates: Array, ages: Array | None = None
    ) -> None:
        """Update theta with one optimizer step.

        `rates` [N] are the members' learning rates as fractions of the recipe's, `ages` [N] their
        steps since the last start; None if no member was restarted.
        """
        r = self.recipe
        if r.clip:
            gradients = _clip(gradients, r.clip)
        for name, slow in self.slow_gradients.items():
            slow.lerp_(gradients[name], 1 - r.grokfast_decay)
            gradients[name] = gradients[name] + r.grokfast * slow
        if self.adamw_names:
            self._adamw(gradients, rates * self._bias_correction(ages))
        if self.groups:
            self._muon(gradients, rates)

    def _adamw(self, gradients: dict[str, torch.Tensor], rates: Array) -> None:
        r, params = self.recipe, [self.theta[n] for n in self.adamw_names]
        same = bool((rates == rates[0]).all())
        before = [] if same else [t.clone() for t in params]
        # The fused kernel ignores strides.
        grads = [gradients[n].contiguous() for n in self.adamw_names]
        mean, square, steps = (list(x.values()) for x in (self.mean, self.square, self.steps))
        adamw(
            params, grads, mean, square, [], steps, fused=True, amsgrad=False, maximize=False,
            lr=r.lr * float(rates[0] if same else 1.0), beta1=r.beta1, beta2=r.beta2,
            weight_decay=r.weight_decay, eps=1e-8,
        )  # fmt: skip
        # AdamW's update, weight decay included, is proportional to its rate.
        for t, old in zip(params, before, strict=False):
            t.copy_(old.lerp(t, _per_member(rates, t)))

    def _bias_correction(self, ages: Array | None) -> Array | float:
        """Return the factor that corrects AdamW's shared step count for restarted members."""
        if ages is None:
            return 1.0
        r, mine = self.recipe, np.asarray(ages) + 1.0
        count = 1.0 + float(next(iter(self.steps.values())))
        mean, square = ((1 - b**mine) / (1 - b**count) for b in (r.beta1, r.beta2))
        return np.where(mine == count, 1.0, np.sqrt(square) / mean)

    def _muon(self, gradients: dict[str, torch.Tensor], rates: Array) -> None:
        r = self.recipe
        groups = zip(self.groups, self.momentum, self.stretch, strict=True)
        for names, momentum, stretch in groups:
            g = torch.stack([_as_wide(gradients[n]) for n in names], 1)  # N G m n, m <= n
            momentum.lerp_(g, 1 - r.momentum)
            update = newton_schulz(g.lerp(momentum, r.momentum))
            mine = [self.theta[n] for n in names]  # N in out
            lr = _per_member(r.muon_lr * rates, g)
            update *= lr * stretch
            torch._foreach_mul_(mine, [1 - lr[:, 0] * r.weight_decay] * len(mine))
            laid = zip(mine, update.unbind(1), strict=True)
            torch._foreach_sub_(mine, [u.mT if w.shape != u.shape else u for w, u in laid])

    def state(self) -> dict[str, torch.Tensor]:
        """Return the complete state of the optimizer."""
        out = {f"momentum.{i}": t for i, t in enumerate(self.momentum)}
        for kind, group in self._arrays().items():
            out |= {f"{kind}.{n}": t for n, t in group.items()}
        return out

    def reset_member(self, i: int) -> None:
        """Reset the state of member i, except the shared step count."""
        for t in self.state().values():
            if t.ndim:
                t[i] = 0

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Restore a state returned by `state`."""
        for full, value in state.items():
            kind, name = full.split(".", 1)
            if kind == "momentum":
                self.momentum[int(name)] = value
            else:
                self._arrays()[kind][name] = value

    def _arrays(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the optimizer state of each array of theta, by the name of that state."""
        arrays = (self.slow_gradients, self.mean, self.square, self.steps)
        return dict(zip(("slow", "exp_avg", "exp_avg_sq", "step"), arrays, strict=True))


def newton_schulz(x: torch.Tensor) -> torch.Tensor:
    """Orthogonalize matrices [..., m, n], m <= n, approximately.

    Five Newton-Schulz iterations bring their singular values near 1.
    """
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    y = x.reshape(-1, *x.shape[-2:])
    for _ in range(5):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return y.reshape(x.shape)


def _as_wide(t: torch.Tensor) -> torch.Tensor:
    return t.mT if t.shape[-2] > t.shape[-1] else t


def _per_member(rates: Array, like: torch.Tensor) -> torch.Tensor:
    """Return rates [N] reshaped to [N,1,…] for multiplication with `like`."""
    spread = torch.as_tensor(np.asarray(rates), dtype=like.dtype, device=like.device)
    return spread.view(-1, *[1] * (like.ndim - 1))


def _clip(gradients: dict[str, torch.Tensor], max_norm: float) -> dict[str, torch.Tensor]:
    """Return the gradients, each member's clipped to `max_norm`.

    They are not clipped in place, because autograd may share memory between arrays.
    """
    grads = list(gradients.values())
    norms = torch.cat([g.flatten(1) for g in grads], 1).norm(dim=1)  # N
    scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    factors = [scale.view(-1, *[1] * (g.ndim - 1)) for g in grads]
    return dict(zip(gradients, torch._foreach_mul(grads, factors), strict=True))


def member_norms(theta: dict[str, torch.Tensor]) -> Array:
    """Return the norm of each member's theta, [N]."""
    squares = [t.cpu().double().flatten(1).square().sum(1) for t in theta.values()]
    return torch.stack(squares).sum(0).sqrt().numpy()


# ── learning rate, as a fraction of the recipe's ───────────────────────────────────────────────
def smooth_losses(before: Array, losses: Array) -> Array:
    """Return the moving average of the losses, [N]; `before` is NaN before the first step."""
    average = LOSS_SMOOTHING * before + (1 - LOSS_SMOOTHING) * losses
    return np.where(np.isnan(before), losses, average)


def decay_start_steps(r: Recipe, step: int, losses: Array, decay_at: Array) -> Array:
    """Return the first decay step of each member with schedule=plateau, [N]; -1 before it."""
    if r.schedule != "plateau" or r.decay_when_accuracy_above:  # Evaluations start the decay.
        return decay_at
    last_level = max((at for at, _ in r.levels()), default=0)
    earliest = max(r.warmup, last_level + LOSS_WARMUP_STEPS)
    now = (decay_at < 0) & (losses < r.decay_when_loss_below) & (step >= earliest)
    return np.where(now, step, decay_at)


def lr_factors(r: Recipe, step: int, decay_at: Array, ages: Array | None = None) -> Array:
    """Return each member's learning rate as a fraction of the recipe's, [N].

    `decay_at` is from `decay_start_steps`; `ages`, the steps since each member's last start,
    defaults to `step`.
    """
    age = np.full(len(decay_at), step) if ages is None else ages
    warm = np.minimum(1.0, (age + 1) / r.warmup) if r.warmup else 1.0
    if r.schedule == "constant":
        return warm * np.ones(len(decay_at))
    plateau_end = np.where(decay_at < 0, step, decay_at)
    begin: Array = {"cosine": r.warmup, "linear": r.decay_from, "plateau": plateau_end}[r.schedule]
    steps = 0 if r.schedule == "cosine" else r.decay_steps
    done = np.clip((step - begin) / (steps or np.maximum(r.steps - begin, 1)), 0.0, 1.0)
    left = 0.5 * (1 + np.cos(math.pi * done)) if r.schedule == "cosine" else 1 - done
    return warm * (r.final_lr_fraction + (1 - r.final_lr_fraction) * left) * np.ones(len(decay_at))

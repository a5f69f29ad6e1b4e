"""Loss and gradients of theta, for one member or for many in one vectorised program."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..answers import said as spoken
from ..arrays import Array
from ..blueprints import Blueprint, Shapes
from ..model import Config, Model, forward
from .recipe import Recipe
from .taps import TAPS

Theta = dict[str, Tensor]


class Objective:
    """What is minimised. Theta has a leading axis of members; so have tokens [N,B,T] and masks."""

    def __init__(
        self, config: Config, shapes: Shapes, blueprint: Blueprint, recipe: Recipe,
        teacher: Model | None = None, compile: bool = False,
    ) -> None:  # fmt: skip
        self.config, self.shapes, self.blueprint = config, shapes, blueprint
        self.recipe, self.teacher = recipe, teacher
        many = torch.func.vmap(self._loss, in_dims=(0, 0, 0, None))
        self._many: Callable[..., Tensor] = many
        if compile:
            self._many = torch.compile(many, dynamic=False)

    def weights(self, theta: Theta) -> Theta:
        """The weights of one member's theta."""
        return self.blueprint.expand(theta, self.shapes)

    def gradients(self, theta: Theta, tokens: Array, answer: Array) -> tuple[Theta, Tensor]:
        """Gradients of theta, and the losses [N]. tokens and answer are NumPy arrays [N,B,T]."""
        device = next(iter(theta.values())).device
        if self.teacher is not None:
            pairs = zip(tokens, answer, strict=True)
            said = np.stack([spoken(self.teacher, t, a) for t, a in pairs])
            tokens = np.where(answer, said, tokens)
        weight = self._weight(answer)
        fed, weight = torch.as_tensor(tokens, device=device), torch.as_tensor(weight, device=device)
        theta, last = {n: t.detach().requires_grad_() for n, t in theta.items()}, weight.shape[-1]
        if len(tokens) > 1:  # members share nothing, so the gradient of the sum is each one's own
            losses = self._many(theta, fed, weight, last)
        else:
            losses = self._loss({n: t[0] for n, t in theta.items()}, fed[0], weight[0], last)[None]
        found = torch.autograd.grad(losses.sum(), list(theta.values()), materialize_grads=True)
        return dict(zip(theta, found, strict=True)), losses.detach()

    def _weight(self, answer: Array) -> Array:
        """How much each prediction counts, [N,B,last], 1 a member in all; the rest is cut off."""
        asked = answer[..., 1:]
        if self.recipe.loss == "all":  # all positions up to the end of the answer
            asked = np.cumsum(asked[..., ::-1], -1)[..., ::-1] > 0
        first = int(asked.any((0, 1)).argmax())
        asked = asked[..., first:].astype(self.recipe.dtype)
        return asked / asked.sum((1, 2), keepdims=True)

    def _loss(self, theta: Theta, tokens: Tensor, weight: Tensor, last: int) -> Tensor:
        tap = TAPS[self.recipe.tap]()
        # B last V
        logits = forward(self.config, self.weights(theta), tokens[:, :-1], tap, last=last)
        wanted = tokens[:, -last:].flatten()
        nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted, reduction="none")
        if self.recipe.focal:
            nll = nll * (1 - (-nll).exp()).detach() ** self.recipe.focal
        return (nll * weight.flatten()).sum()

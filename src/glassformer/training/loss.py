"""Loss and gradients of theta, for one member or for many in one vectorised program."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.backend import Array
from ..core.model import Config, Model, forward
from ..parametrizations import Parametrization, Shapes
from ..verification.evaluation import greedy_outputs as spoken
from .recipe import Recipe
from .train_hooks import TRAIN_HOOKS

Theta = dict[str, Tensor]
# how many shapes (members that are left, lengths) are compiled, each once, before it is an error
COMPILE_LIMITS: dict[str, Any] = {"recompile_limit": 1_000, "accumulated_recompile_limit": 1_000}
Losses = tuple[Tensor, Tensor]  # of all, and of each row its worst token's


class Objective:
    """What is minimised. Theta has a leading axis of members; so have tokens [N,B,T] and masks."""

    def __init__(
        self, config: Config, shapes: Shapes, parametrization: Parametrization, recipe: Recipe,
        teacher: Model | None = None, compile: bool = False,
    ) -> None:  # fmt: skip
        self.config, self.shapes, self.parametrization = config, shapes, parametrization
        self.recipe, self.teacher, self.compile = recipe, teacher, compile
        many = torch.func.vmap(self._loss)
        self._many: Callable[..., Losses] = many
        if compile:
            # whole or not at all: what compiles in parts is no faster, and nobody would know
            self._many = torch.compile(many, dynamic=False, fullgraph=True)

    def weights(self, theta: Theta) -> Theta:
        """The weights of one member's theta."""
        return self.parametrization.expand(theta, self.shapes)

    def gradients(self, theta: Theta, tokens: Array, answer: Array) -> tuple[Theta, Tensor, Tensor]:
        """Return gradients, losses [N] and largest token losses of rows [N,B]. tokens: [N,B,T]."""
        device = next(iter(theta.values())).device
        if self.config.mask == "causal" and not self.compile:  # a length is a program of its own
            end = 1 + int(np.flatnonzero(answer.any((0, 1)))[-1])  # nothing is asked after it
            tokens, answer = tokens[..., :end], answer[..., :end]
        if self.teacher is not None:
            pairs = zip(tokens, answer, strict=True)
            said = np.stack([spoken(self.teacher, t, a) for t, a in pairs])
            tokens = np.where(answer, said, tokens)
        weight = self._weight(answer)
        fed, weight = torch.as_tensor(tokens, device=device), torch.as_tensor(weight, device=device)
        asked = torch.as_tensor(answer[..., -weight.shape[-1] :], device=device)
        alone = len(tokens) == 1 and not self.compile
        if alone:  # without the axis of members: gradients through its slices would be copied
            theta = {n: t[0] for n, t in theta.items()}
            fed, weight, asked = fed[0], weight[0], asked[0]
        theta = {n: t.detach().requires_grad_() for n, t in theta.items()}
        if self.compile:
            with torch._dynamo.config.patch(**COMPILE_LIMITS):
                losses, worst = self._many(theta, fed, weight, asked)
        else:  # members share nothing: the gradient of the sum is each one's own
            losses, worst = (self._loss if alone else self._many)(theta, fed, weight, asked)
        found = torch.autograd.grad(losses.sum(), list(theta.values()), materialize_grads=True)
        if alone:
            found, losses, worst = tuple(g[None] for g in found), losses[None], worst[None]
        return dict(zip(theta, found, strict=True)), losses.detach(), worst

    def _weight(self, answer: Array) -> Array:
        """How much each prediction counts, [N,B,last], 1 a member in all; the rest is cut off."""
        asked = answer[..., 1:]
        if self.recipe.loss == "all":  # all positions up to the end of the answer
            asked = np.cumsum(asked[..., ::-1], -1)[..., ::-1] > 0
        first = int(asked.any((0, 1)).argmax())
        asked = asked[..., first:].astype(self.recipe.dtype)
        return asked / asked.sum((1, 2), keepdims=True)

    def _loss(self, theta: Theta, tokens: Tensor, weight: Tensor, asked: Tensor) -> Losses:
        tap, last = TRAIN_HOOKS[self.recipe.train_hook](), weight.shape[-1]
        # B last V
        logits = forward(self.config, self.weights(theta), tokens[:, :-1], tap, last=last)
        wanted = tokens[:, -last:].flatten()
        nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted, reduction="none")
        worst = (nll.detach() * asked.flatten()).view(len(tokens), last).amax(1)
        if self.recipe.focal:
            nll = nll * (1 - (-nll).exp()).detach() ** self.recipe.focal
        return (nll * weight.flatten()).sum(), worst

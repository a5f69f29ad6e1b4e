"""Loss and gradients of theta for one member or, vectorized, for an ensemble."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.backend import Array
from ..core.model import Config, Model, forward
from ..parametrizations import Parametrization, Shapes
from ..verification.evaluation import greedy_outputs
from .recipe import Recipe
from .train_hooks import TRAIN_HOOKS

Theta = dict[str, Tensor]
# Each number of members and each length is compiled once.
COMPILE_LIMITS: dict[str, Any] = {"recompile_limit": 1_000, "accumulated_recompile_limit": 1_000}
Losses = tuple[Tensor, Tensor]  # mean loss, and largest token loss of each row


class Objective:
    """The training loss. Theta has a leading member axis, as do tokens and masks [N,B,T]."""

    def __init__(
        self, config: Config, shapes: Shapes, parametrization: Parametrization, recipe: Recipe,
        teacher: Model | None = None, compile: bool = False,
    ) -> None:  # fmt: skip
        self.config, self.shapes, self.parametrization = config, shapes, parametrization
        self.recipe, self.teacher, self.compile = recipe, teacher, compile
        many = torch.func.vmap(self._loss)
        self._many: Callable[..., Losses] = many
        if compile:  # Partial graphs are not faster, so compile all of it.
            self._many = torch.compile(many, dynamic=False, fullgraph=True)

    def weights(self, theta: Theta) -> Theta:
        """Return the weights that one member's theta expands to."""
        return self.parametrization.expand(theta, self.shapes)

    def gradients(self, theta: Theta, tokens: Array, answer: Array) -> tuple[Theta, Tensor, Tensor]:
        """Return the gradients of theta, the losses [N], and each row's largest token loss [N,B].

        `tokens` and the mask `answer` of the answer tokens are [N,B,T] for N members.
        """
        device = next(iter(theta.values())).device
        # Drop tokens after the last answer token. Compiling would repeat for each length.
        if self.config.mask == "causal" and not self.compile:
            end = 1 + int(np.flatnonzero(answer.any((0, 1)))[-1])
            tokens, answer = tokens[..., :end], answer[..., :end]
        if self.teacher is not None:
            pairs = zip(tokens, answer, strict=True)
            outputs = np.stack([greedy_outputs(self.teacher, t, a) for t, a in pairs])
            tokens = np.where(answer, outputs, tokens)
        weights = self._weight(answer)
        inputs = torch.as_tensor(tokens, device=device)
        weight = torch.as_tensor(weights, device=device)
        is_answer = torch.as_tensor(answer[..., -weight.shape[-1] :], device=device)
        single = len(tokens) == 1 and not self.compile
        if single:  # Without a member axis, gradients need no copies of slices.
            theta = {n: t[0] for n, t in theta.items()}
            inputs, weight, is_answer = inputs[0], weight[0], is_answer[0]
        theta = {n: t.detach().requires_grad_() for n, t in theta.items()}
        if self.compile:
            with torch._dynamo.config.patch(**COMPILE_LIMITS):
                losses, worst = self._many(theta, inputs, weight, is_answer)
        else:  # Members are independent, so the sum has each member's gradient.
            loss = self._loss if single else self._many
            losses, worst = loss(theta, inputs, weight, is_answer)
        grads = torch.autograd.grad(losses.sum(), list(theta.values()), materialize_grads=True)
        if single:
            grads, losses, worst = tuple(g[None] for g in grads), losses[None], worst[None]
        return dict(zip(theta, grads, strict=True)), losses.detach(), worst

    def _weight(self, answer: Array) -> Array:
        """Return the loss weights of the last predictions, [N,B,last]; each member's sum is 1."""
        counted = answer[..., 1:]
        if self.recipe.loss == "all":  # Use all positions up to the end of the answer.
            counted = np.cumsum(counted[..., ::-1], -1)[..., ::-1] > 0
        first = int(counted.any((0, 1)).argmax())
        counted = counted[..., first:].astype(self.recipe.dtype)
        return counted / counted.sum((1, 2), keepdims=True)

    def _loss(self, theta: Theta, tokens: Tensor, weight: Tensor, is_answer: Tensor) -> Losses:
        hook, last = TRAIN_HOOKS[self.recipe.train_hook](), weight.shape[-1]
        # B last V
        logits = forward(self.config, self.weights(theta), tokens[:, :-1], hook, last=last)
        targets = tokens[:, -last:].flatten()
        nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets, reduction="none")
        worst = (nll.detach() * is_answer.flatten()).view(len(tokens), last).amax(1)
        if self.recipe.focal:
            nll = nll * (1 - (-nll).exp()).detach() ** self.recipe.focal
        return (nll * weight.flatten()).sum(), worst

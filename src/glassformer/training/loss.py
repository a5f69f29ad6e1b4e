"""Loss and gradients of theta, for one member or for many in one vectorised program; and accuracy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .. import arrays
from ..arrays import Array
from ..blueprints import Blueprint, Shapes
from ..decoding import stream
from ..model import Config, Model, forward
from ..tasks.base import Task
from .recipe import Recipe
from .taps import TAPS

Theta = dict[str, torch.Tensor]


class Objective:
    """What is minimised. Theta has a leading axis of members; so have tokens [N,B,T] and masks."""

    def __init__(
        self, config: Config, shapes: Shapes, blueprint: Blueprint, recipe: Recipe, teacher: Model | None = None,
        compile: bool = False,
    ) -> None:  # fmt: skip
        self.config, self.shapes, self.blueprint, self.recipe, self.teacher = config, shapes, blueprint, recipe, teacher
        many = torch.func.vmap(self._loss, in_dims=(0, 0, 0, None))
        self._many: Callable[..., torch.Tensor] = torch.compile(many, dynamic=False) if compile else many

    def weights(self, theta: Theta) -> Theta:
        """The weights of one member's theta."""
        return self.blueprint.expand(theta, self.shapes)

    def gradients(self, theta: Theta, tokens: Array, answer: Array) -> tuple[Theta, torch.Tensor]:
        """Gradients of theta, and the losses [N]. tokens and answer are NumPy arrays [N,B,T]."""
        device = next(iter(theta.values())).device
        if self.teacher is not None:
            said = np.stack([decoded(self.teacher, t, a) for t, a in zip(tokens, answer, strict=True)])
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
        """How much each prediction counts, [N,B,last], 1 a member in all; what comes before is cut off."""
        asked = answer[..., 1:]
        if self.recipe.loss == "all":  # all positions up to the end of the answer
            asked = np.cumsum(asked[..., ::-1], -1)[..., ::-1] > 0
        first = int(asked.any((0, 1)).argmax())
        asked = asked[..., first:].astype(self.recipe.dtype)
        return asked / asked.sum((1, 2), keepdims=True)

    def _loss(self, theta: Theta, tokens: torch.Tensor, weight: torch.Tensor, last: int) -> torch.Tensor:
        tap = TAPS[self.recipe.tap]()
        logits = forward(self.config, self.weights(theta), tokens[:, :-1], tap, last=last)  # B last V
        nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, -last:].flatten(), reduction="none")
        if self.recipe.focal:
            nll = nll * (1 - (-nll).exp()).detach() ** self.recipe.focal
        return (nll * weight.flatten()).sum()


def right(model: Model, task: Task, rows: Any, tap: str = "", forced: bool | None = None, chunk: int = 1024) -> Any:
    """Which answer tokens are right, bool [B, longest answer]; an answer that is shorter is right beyond its end.

    `forced`: the right tokens are given and the next one is asked for; else the model reads what it said. For a causal
    model both are right on the same rows, so the first (which is cheaper) is the default; the others are decoded.
    """
    forced = model.config.mask == "causal" if forced is None else forced
    out = []
    for start in range(0, len(rows), chunk):
        tokens, answer = task.batch(rows[start : start + chunk])
        said = (teacher_forced if forced else decoded)(model, tokens, answer, tap)
        good = (said == tokens) | ~answer
        order = np.argsort(~answer, axis=1, kind="stable")[:, : int(answer.sum(1).max())]  # answer tokens first
        out.append(np.take_along_axis(good, order, 1))
    width = max(part.shape[1] for part in out)
    return np.concatenate([np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=True) for p in out])


def teacher_forced(model: Model, tokens: Any, answer: Any, tap: str = "") -> Any:
    """The tokens, and from the first answer token on what the model says after those before it."""
    last = tokens.shape[1] - int(answer.any(0).argmax())
    return np.concatenate([tokens[:, :-last], _logits(model, tokens[:, :-1], tap, last).argmax(-1)], 1)


def decoded(model: Model, tokens: Any, answer: Any, tap: str = "") -> Any:
    """The tokens, and where the answer is what the model says when it reads its own words."""
    said = tokens.copy()
    first = answer.argmax(1)
    for at in np.unique(first):  # rows of one prompt length together
        group = np.nonzero(first == at)[0]
        if not tap:
            for t, step in enumerate(stream(model, tokens[group, :at], tokens.shape[1] - at), at):
                said[group, t] = step.chosen
            continue
        for t in range(at, tokens.shape[1]):
            said[group, t] = _logits(model, said[group, :t], tap, 1)[:, -1].argmax(-1)
    return said


def _logits(model: Model, tokens: Any, tap: str, last: int) -> Any:
    with torch.no_grad():
        fed = torch.as_tensor(tokens, device=model.weights["embed.W_E"].device)
        return arrays.numpy(forward(model.config, model.weights, fed, TAPS[tap](), last=last))

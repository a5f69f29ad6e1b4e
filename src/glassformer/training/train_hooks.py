"""Ablations that a config cannot express, as hooks for training and evaluation."""

from collections.abc import Callable

from ..core.backend import Array
from ..core.model import Hook


class NoResidual:
    """Hook that replaces the residual stream by each block's output instead of adding it."""

    def __call__(self, name: str, value: Array) -> Array:
        if name.endswith(("hook_attn_out", "hook_mlp_out")):
            self.out = value
        elif name.endswith(("hook_resid_mid", "hook_resid_post")):
            return self.out
        return value


def no_attention(name: str, value: Array) -> Array:
    """Replace the output of attention by zeros."""
    return value * 0 if name.endswith("hook_attn_out") else value


TRAIN_HOOKS: dict[str, Callable[[], Hook | None]] = {
    "": lambda: None, "no-residual": NoResidual, "no-attention": lambda: no_attention,
}  # fmt: skip

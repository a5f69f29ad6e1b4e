"""Greedy and sampled decoding of batches, with a key-value cache and a sliding context."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..utils.errors import GlassformerError
from ..utils.limits import MAX_DECODED_TOKENS, check_finite, check_int_range
from . import backend
from .backend import Array
from .model import Hook, Model


class KeyValueCache(dict[str, Array]):
    """Hook that prepends stored keys and values, so that only new tokens are run."""

    def __call__(self, name: str, value: Array) -> Array:
        if name.endswith((".hook_k", ".hook_v")):
            if name in self:
                value = backend.backend_for(value).concat([self[name], value], 1)
            self[name] = value
        return value


@dataclass(frozen=True)
class DecodingStep:
    """One decoding step of a batch: input tokens, logits and chosen tokens."""

    tokens: Any  # [B, T], the input
    logits: Any  # [B, V], for the next token
    chosen: Any  # [B], the next token


def decode_steps(
    model: Model,
    tokens: Any,
    steps: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    rng: np.random.Generator | None = None,
    cached: bool = True,
    hook: Hook | None = None,
) -> Iterator[DecodingStep]:
    """Decode tokens [B,T] or [T] and yield every step.

    Beyond n_ctx the context window slides and positions restart at 0. With a `hook`, keys and
    values are not cached, so the hook is called with all tokens at every step.
    """
    check_finite("decoding — temperature", temperature)
    check_int_range("decoding — top_k", 1 if top_k is None else top_k, 1, 2**63 - 1)
    check_int_range("decoding — steps", steps, 0, MAX_DECODED_TOKENS)
    block = model.config.n_ctx
    tokens = np.atleast_2d(backend.to_numpy(model.to_tokens(tokens)))
    # without a causal mask, keys and values depend on later tokens
    cached = cached and hook is None and model.config.mask == "causal"
    cache, fed = KeyValueCache(), 0
    for _ in range(steps):
        length = tokens.shape[1]
        if cached and fed and length <= block:
            logits = model.logits(tokens[:, fed:], cache, 1, fed)[:, -1]
        else:
            cache.clear()
            logits = model.logits(tokens[:, -block:], cache if cached else hook, 1)[:, -1]
        fed = length
        chosen = _choose_tokens(logits, temperature, top_k, rng)
        yield DecodingStep(tokens, logits, chosen)
        tokens = np.concatenate([tokens, chosen[:, None]], 1)


def decode(
    model: Model,
    tokens: Any,
    steps: int,
    *,
    stop: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    rng: np.random.Generator | None = None,
    cached: bool = True,
) -> Any:
    """Return tokens [B,T] or [T] followed by up to `steps` decoded tokens.

    Args:
        model: The model.
        tokens: Prompts, [B,T] or [T].
        steps: Maximum number of tokens to add.
        stop: Token that ends a sequence, which is then padded with this token.
        temperature: Sampling temperature; 0 decodes greedily.
        top_k: Number of most likely tokens to sample from; None samples from all.
        rng: Random generator, required for sampling.
        cached: Whether to use a key-value cache.
    """
    if stop is not None:
        check_int_range("decoding — stop", stop, 0, model.config.d_vocab - 1)
    is_single = np.ndim(tokens) == 1
    out = np.atleast_2d(np.asarray(tokens))
    done = np.zeros(len(out), dtype=bool)
    options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "rng": rng}
    for step in decode_steps(model, out, steps, cached=cached, **options):
        if not np.isfinite(step.logits[~done]).all():
            raise GlassformerError(f"decoding — logits are not finite after {out.shape[1]} tokens")
        chosen = step.chosen
        if stop is not None:
            chosen = np.where(done, stop, chosen)
            done |= chosen == stop
        out = np.concatenate([out, chosen[:, None]], 1)
        if done.all():
            break
    return out[0] if is_single else out


def _choose_tokens(
    logits: Any, temperature: float, top_k: int | None, rng: np.random.Generator | None
) -> Any:
    if temperature == 0:
        return logits.argmax(-1)
    if rng is None:
        needed = "needs a random generator: rng=np.random.default_rng(seed)"
        raise GlassformerError(f"sampling — {needed}")
    with np.errstate(over="ignore"):  # at tiny temperatures all logits but the largest become -inf
        x = (logits - logits.max(-1, keepdims=True)).astype(np.float64) / temperature
    if top_k is not None and top_k < x.shape[-1]:
        threshold = np.partition(x, -top_k, axis=-1)[:, -top_k, None]
        x = np.where(x >= threshold, x, -np.inf)
    gumbel = -np.log(-np.log(rng.random(x.shape)))
    return (x + gumbel).argmax(-1)  # Gumbel-max trick: samples from softmax(x)

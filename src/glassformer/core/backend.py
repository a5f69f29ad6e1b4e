"""Operations whose names or kernels differ between NumPy and PyTorch.

`backend_for(x)` returns the namespace for the array x, with the methods of `NumpyNamespace`.
Operations for which PyTorch has a fused kernel are included.
"""

import math
import sys
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # np.ndarray or torch.Tensor (or a type in NAMESPACES)

# shortest axis on which PyTorch's softmax is vectorized
FUSED_SOFTMAX_WIDTH = 16
BLOCK_ENTRIES = 2**16  # number of entries that fit into the processor's cache


class NumpyNamespace:
    tanh, sqrt, concat = np.tanh, np.sqrt, staticmethod(np.concatenate)
    cos, sin, exp, stack = np.cos, np.sin, np.exp, staticmethod(np.stack)
    fused_norms: dict[str, Any] = {}  # noqa: RUF012 - read only

    def as_dtype_of(self, x: Array, table: Array) -> Array:
        """Convert a float64 table to x's array type and dtype."""
        return table.astype(x.dtype, copy=False)

    def no_grad(self, inference: bool) -> AbstractContextManager[Any]:
        """Disable floating-point warnings and gradients; callers check for non-finite values.

        `inference` is True if no hook is attached, so that no later gradient uses an activation.
        """
        return np.errstate(all="ignore")

    def to_device_of(self, W: Array, tokens: Array) -> Array:
        """Convert tokens to 64-bit integers of W's array type, on W's device."""
        return to_numpy(tokens).astype(np.int64, copy=False)

    def is_compiling(self) -> bool:
        """Return whether torch.compile is tracing this call."""
        return False

    def take(self, W: Array, tokens: Array) -> Array:
        return W[tokens]

    def permute_axis(self, x: Array, order: Array, axis: int) -> Array:
        """Return x with the entries along an axis in the given order."""
        return np.take(x, order, axis)

    def broadcast_positions(self, W: Array, n: int) -> Array:
        """Broadcast W [V,D] to n positions, [V,n,D]."""
        return np.broadcast_to(W[:, None], (W.shape[0], n, W.shape[1]))

    def gather_rows(self, tokens: Array, table: Array) -> Array:
        """Look up the last n tokens of each sequence by position in a table [V,n,*]: [B,n,*]."""
        n = table.shape[1]
        at = tokens[:, -n:] * n + np.arange(n)
        return table.reshape(-1, *table.shape[2:]).take(at, axis=0)

    def can_sum_rows(self, table: Array) -> bool:
        """Return whether rows of a table can be summed without copying them first."""
        return False

    def affine(self, x: Array, W: Array, b: Array | None) -> Array:
        """Return x [B,T,*in] times W [*in,*out] plus b [*out]: [B,T,*out]."""
        n = x.ndim - 2
        inner, outer = math.prod(W.shape[:n]), math.prod(W.shape[n:])
        y = x.reshape(x.shape[0] * x.shape[1], inner) @ W.reshape(inner, outer)
        if b is not None:
            y += b.reshape(outer)
        return y.reshape(*x.shape[:2], *W.shape[n:])

    def scores(self, q: Array, k: Array) -> Array:
        """Return the dot products [B,H,T,S] of queries q [B,T,H,K] and keys k [B,S,H,K]."""
        return np.matmul(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1))

    def attend(self, pattern: Array, v: Array) -> Array:
        """Return the sums [B,T,H,K] of values v [B,S,H,K] weighted by a pattern [B,H,T,S]."""
        return np.matmul(pattern, v.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)

    def relu(self, x: Array) -> Array:
        return np.maximum(x, 0)

    def gelu(self, x: Array) -> Array:
        out = np.empty(x.shape, x.dtype)
        inputs, outputs = x.reshape(-1), out.reshape(-1)
        for i in range(0, x.size, BLOCK_ENTRIES):
            part = slice(i, i + BLOCK_ENTRIES)
            y = erf(inputs[part] * 0.5**0.5)
            y += 1
            y *= inputs[part]
            y *= 0.5
            outputs[part] = y
        return out

    def mean(self, x: Array) -> Array:
        # np.mean is four times slower on short axes
        return np.einsum("...d->...", x)[..., None] / x.shape[-1]

    def softmax(self, x: Array) -> Array:
        e = x - max_last_axis(x)[..., None]
        out = -746 if e.dtype == np.float64 else -104  # below this number exp is 0 and slow
        np.copyto(e, -np.inf, where=e < out)
        np.exp(e, out=e)
        e /= np.einsum("...s->...", e)[..., None]
        return e


class TorchNamespace:
    """Operations on PyTorch tensors. Names not defined here are looked up in torch."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.F = torch, torch.nn.functional
        layer = self.F.layer_norm
        self.fused_norms = {"layer": lambda x, w, b, eps: layer(x, x.shape[-1:], w, b, eps)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)

    def as_dtype_of(self, x: Array, table: Array) -> Array:
        return self.torch.as_tensor(table, dtype=x.dtype, device=x.device)

    def no_grad(self, inference: bool) -> AbstractContextManager[Any]:
        context = self.torch.inference_mode if inference else self.torch.no_grad
        return context()  # type: ignore[no-any-return]

    def to_device_of(self, W: Array, tokens: Array) -> Array:
        if isinstance(tokens, np.ndarray):
            tokens = tokens.astype(np.int64, copy=False)
        return self.torch.as_tensor(tokens, device=W.device).long()

    def is_compiling(self) -> bool:
        return bool(self.torch.compiler.is_compiling())

    def take(self, W: Array, tokens: Array) -> Array:
        return self.F.embedding(tokens, W)  # W[tokens] has a slow gradient

    def permute_axis(self, x: Array, order: Array, axis: int) -> Array:
        return x.index_select(axis, self.torch.as_tensor(order, device=x.device))

    def broadcast_positions(self, W: Array, n: int) -> Array:
        return W[:, None].expand(-1, n, -1)

    def gather_rows(self, tokens: Array, table: Array) -> Array:
        n = table.shape[1]
        at = tokens[:, -n:] * n + self.torch.arange(n, device=tokens.device)
        rows = self.F.embedding(at, table.reshape(table.shape[0] * n, -1))
        return rows.reshape(*at.shape, *table.shape[2:])

    def can_sum_rows(self, table: Array) -> bool:
        # embedding_bag sums rows, but without gradients and not under torch.func transforms
        precise = table.dtype in (self.torch.float32, self.torch.float64)
        quiet = self.torch.is_inference_mode_enabled()
        return precise and quiet and table.device.type == "cpu"

    def affine(self, x: Array, W: Array, b: Array | None) -> Array:
        n = x.ndim - 2
        inner, outer = math.prod(W.shape[:n]), math.prod(W.shape[n:])
        rows, out = x.shape[0] * x.shape[1], (*x.shape[:2], *W.shape[n:])
        x, W = x.reshape(rows, inner), W.reshape(inner, outer)  # inner may be 0: an MLP of width 0
        y = x @ W if b is None else self.torch.addmm(b.reshape(outer), x, W)
        return y.reshape(out)

    def scores(self, q: Array, k: Array) -> Array:
        return q.transpose(1, 2) @ k.permute(0, 2, 3, 1)

    def attend(self, pattern: Array, v: Array) -> Array:
        return (pattern @ v.transpose(1, 2)).transpose(1, 2)

    def gelu(self, x: Array) -> Array:
        return self.F.gelu(x)

    def mean(self, x: Array) -> Array:
        return x.mean(-1, keepdim=True)

    def softmax(self, x: Array) -> Array:
        if x.shape[-1] >= FUSED_SOFTMAX_WIDTH:
            return x.softmax(-1)
        columns = x.reshape(-1, x.shape[-1]).T  # vectorized over rows
        return columns.softmax(0).T.reshape(x.shape)


NAMESPACES: dict[type, Any] = {np.ndarray: NumpyNamespace()}


def backend_for(x: Array) -> Any:
    """Return the namespace for the type of array x."""
    if own := getattr(type(x), "namespace", None):  # array-like tables of token_tables.py
        return own(x)
    if type(x) not in NAMESPACES:  # x is a tensor, so PyTorch is imported
        NAMESPACES[type(x)] = TorchNamespace(sys.modules["torch"])
    return NAMESPACES[type(x)]


def to_numpy(x: Array) -> Any:
    """Convert x to a NumPy array; bfloat16 becomes float32, which represents it exactly."""
    if isinstance(x, np.ndarray):
        return x
    x = x.detach().cpu()
    return (x.float() if dtype_name(x) == "bfloat16" else x).numpy()


def dtype_name(x: Array) -> str:
    """Return the name of an array's dtype, such as "float64" or "bfloat16"."""
    return str(x.dtype).removeprefix("torch.")


def is_subnormal(x: Any) -> Any:
    """Return a mask of the subnormal numbers in a NumPy array or float.

    The bits are tested, since comparisons treat subnormals as 0 under `torch.set_flush_denormal`.
    """
    x = np.asarray(x)
    size = x.view(f"u{x.dtype.itemsize}") & (2 ** (8 * x.dtype.itemsize - 1) - 1)  # no sign bit
    return (size > 0) & (size < 2 ** np.finfo(x.dtype).nmant)


def max_last_axis(x: Any) -> Any:
    """Return the maximum over the last axis of a NumPy array."""
    if not 0 < x.shape[-1] <= 64:  # on a short axis, np.max is four times slower than this loop
        return x.max(axis=-1)
    m = x[..., 0].copy()
    for i in range(1, x.shape[-1]):
        np.maximum(m, x[..., i], out=m)  # propagates NaN like np.max
    return m


def erf(x: Array) -> Array:
    """Return the error function of x, which NumPy does not provide.

    In float64 it is accurate to 2 ulp (W. J. Cody, 1969). In float32 it is accurate to 5e-7, by one
    rational function as in XLA and Eigen, which is five times faster.
    """
    if x.dtype == np.float32:
        y = np.clip(x, -4, 4)
        z = y * y
        y *= _horner(_ERF32_NUMERATOR, z)
        y /= _horner(_ERF32_DENOMINATOR, z)
        return np.clip(y, -1, 1, out=y)
    y = np.abs(x)
    np.minimum(y, 6.0, out=y)  # erf(6) is 1 in float64, so the third piece is not needed
    z = y * y
    near = _horner(_ERF_NUMERATOR, z)
    near *= x
    near /= _horner(_ERF_DENOMINATOR, z)
    far = np.exp(np.negative(z, out=z), out=z)
    far *= _horner(_ERFC_NUMERATOR, y)
    far /= _horner(_ERFC_DENOMINATOR, y)
    np.subtract(1, far, out=far)
    np.copysign(far, x, out=far)
    np.copyto(far, near, where=y < 0.5)
    return far


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    """Evaluate a polynomial in place, since temporary arrays cost more than the arithmetic."""
    y = np.full_like(x, coefficients[0])
    for a in coefficients[1:]:
        y *= x
        y += a
    return y


_ERF32_NUMERATOR = (
    -2.72614225801306e-10,
    2.77068142495902e-8,
    -2.10102402082508e-6,
    -5.69250639462346e-5,
    -7.34990630326855e-4,
    -2.95459980854025e-3,
    -1.60960333262415e-2,
)
_ERF32_DENOMINATOR = (
    -1.45660718464996e-5,
    -2.13374055278905e-4,
    -1.68282697438203e-3,
    -7.37332916720468e-3,
    -1.42647390514189e-2,
)
_ERF_NUMERATOR = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_ERF_DENOMINATOR = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
      2.84423683343917062e3)  # fmt: skip
_ERFC_NUMERATOR = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_ERFC_DENOMINATOR = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
      1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
      1.23033935480374942e3)  # fmt: skip

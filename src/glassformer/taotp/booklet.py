"""The names of the booklet "The Art of Transformer Programming": its index, as short functions.

    >>> from glassformer.taotp import booklet
    >>> params = booklet.build_min_transformer(vocab_size=20, block_size=8)
    >>> booklet.decode([6, 2, 12, 18], params, max_steps=1)
    array([ 6,  2, 12, 18,  2])

All 54 names of the booklet's index, with its order of arguments. A function calls what the package
has, see booklet_names.py. Programs are `params`, dicts of arrays as in Figure 1.3, and
`gf.load(params)` is the Model. Random functions have a last argument `rng`, and are different at
every call without it. Where the printed code does not do what the text says, the text is followed.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import craft
from ..core import decoding
from ..core.backend import Array
from ..core.model import Config, Model, Scope, attention, block
from ..core.vocabulary import Vocabulary
from ..craft import Floats
from ..parametrizations.rotated import rotate
from ..programs import lookup_book, sort_book
from ..programs.add_digit import add_digit
from ..programs.add_mod import figure_6_3
from ..programs.addition_book import figure_6_4
from ..programs.extremes import book_extreme
from ..programs.lookup_hash import hash_table
from ..programs.search_book import book_search
from ..tasks.lookup import Table
from ..tasks.message import Message
from ..tasks.search import Search
from ..utils.errors import GlassformerError, value_error
from . import keys, parse
from .params import Params, from_params, to_params
from .params import base_layer as base_layer
from .params import base_params as base_params

Ints = NDArray[np.int64]
Layer = dict[str, Any]
EPSILON, NO_EPS = 1e-10, 1e-20  # of the booklet, and under a root to the same effect


# ── chapter 1: the transformer ─────────────────────────────────────────────────────────────────
def norm(x: Array, axis: int = -1, epsilon: float = EPSILON) -> Floats:
    """Return numbers divided by their sum along an axis (Figure 1.1)."""
    x = np.asarray(x, dtype=float)
    out: Floats = x / (x.sum(axis=axis, keepdims=True) + epsilon)
    return out


def softmax(x: Array, axis: int = -1) -> Floats:
    """Return the exponentials, divided by their sum (Figure 1.1)."""
    return norm(np.exp(x - np.max(x, axis=axis, keepdims=True)), axis)


def layer_norm(
    x: Array, gamma: Array = 1.0, beta: Array = 0.0, axis: int = -1,
    epsilon: float = EPSILON,
) -> Floats:  # fmt: skip
    """Shift to mean 0, divide by the standard deviation plus epsilon, scale, shift (Figure 1.1)."""
    centered = x - np.mean(x, axis=axis, keepdims=True)
    out: Floats = beta + gamma * centered / (np.std(x, axis=axis, keepdims=True) + epsilon)
    return out


def self_attn(x: Array, Q: Floats, K: Floats, V: Floats, P: Floats, mask: Array) -> Floats:
    """Return what the heads of a layer add to the stream [n, d_model] (Figure 1.1).

    Args:
        x: Stream after the layer norm, [n, d_model].
        Q: Query matrices, [heads, d_model, d_head].
        K: Key matrices, as Q.
        V: Value matrices, as Q.
        P: Projections back to the stream, as Q.
        mask: [n, n]; row i has a number other than 0 where position i may look.
    """
    config, at = _masked({"Q": Q, "K": K, "V": V, "P": P}, mask)
    out: Floats = attention(config, at / "attn", np.asarray(x, dtype=float)[None], None)[0]
    return out


def self_attn2(x: Array, Q: Floats, K: Floats, V: Floats, P: Floats, m: Array) -> Floats:
    """Return attention in two lines, with three differences from `self_attn` (exercise 1.2).

    Scores are not divided by √d_head, hidden positions have the score -1e20 instead of -∞, and the
    result is transposed, [d_model, n]. (As printed it lacks a bracket.)
    """
    scores = np.einsum("ti,hik,sj,hjk->tsh", x, Q, x, K)
    weights = softmax(np.where(np.asarray(m)[..., None], scores, -1e20), axis=1)
    out: Floats = np.einsum("tsh,si,hik,hdk->dt", weights, x, V, P)
    return out


def transformer_layer(
    x: Array, Q: Floats, K: Floats, V: Floats, P: Floats, M1: Floats, b1: Floats,
    M2: Floats, b2: Floats, ln1: Layer, ln2: Layer, mask: Array,
) -> Floats:  # fmt: skip
    """Return the stream [n, d_model] after a layer: attention, then the MLP (Figure 1.1)."""
    arrays = {"Q": Q, "K": K, "V": V, "P": P, "M1": M1, "b1": b1, "M2": M2, "b2": b2}
    config, at = _masked(arrays, mask, ln1=ln1, ln2=ln2)
    out: Floats = block(config, at, np.asarray(x, dtype=float)[None], None)[0]
    return out


def _masked(arrays: Layer, mask: Array, **norms: Layer) -> tuple[Config, Scope]:
    """Return a layer for the functions of core/model.py, with a mask as a hook on the scores."""
    heads, d_model, d_head = np.shape(arrays["Q"])
    config = Config(1, 1, d_model, n_heads=heads, d_head=d_head, eps=NO_EPS, mask="none",
                    activation="relu")  # fmt: skip
    weights = {
        name: keys.transpose_if_needed(name, np.asarray(arrays[key], dtype=float))
        for key, (name, _) in keys.LAYER_ARRAYS.items() if key in arrays
    }  # fmt: skip
    for name, gains in norms.items():
        for gain, (suffix, default) in keys.NORM_PARAMETERS.items():
            weights[f"{name}.{suffix}"] = np.asarray(gains.get(gain, default), dtype=float)
    hidden = np.where(mask, 0.0, -np.inf)
    return config, Scope(weights, lambda n, y: y + hidden if n.endswith("_scores") else y)


def transformer(
    tokens: Array, tok_emb: Floats, pos_emb: Floats, out_emb: Floats,
    layers: Sequence[Layer], lnf: Layer,
) -> Floats:  # fmt: skip
    """Return the logits [n, V] of tokens [n]: `transformer(tokens, **params)` (Figure 1.1)."""
    program = {"tok_emb": tok_emb, "pos_emb": pos_emb, "out_emb": out_emb, "lnf": lnf}
    out: Floats = from_params(program | {"layers": list(layers)})(tokens)
    return out


def decode(tokens: Array, params: Params, max_steps: int = 1000, eos: int | None = None) -> Ints:
    """Return tokens [n] followed by those that a program decodes greedily (Figure 1.2).

    Beyond the block the context slides, as exercise 1.7 asks.
    """
    out: Ints = decoding.decode(from_params(params), np.asarray(tokens), max_steps, stop=eos)
    return out


class HumanReadableDict(dict[str, int]):
    """A dict that prints its numbers with thousands separators (Figure 1.4)."""

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key}: {n:,}' for key, n in self.items())}}}"


def count_params(params: Params, count: Callable[[Any], Any] = np.size) -> HumanReadableDict:
    """Count the entries of a program, by embedding and of all layers together (Figure 1.4).

    An `out_emb` that equals `tok_emb` is not counted. Gains and biases of norms are never counted.
    """
    tied = np.array_equal(params["tok_emb"], params["out_emb"])
    sizes = {name: int(count(np.asarray(params[name])))
             for name in ("tok_emb", "pos_emb", "out_emb")[: 3 - tied]}  # fmt: skip
    arrays = [a for layer in params["layers"] for a in layer.values() if not isinstance(a, dict)]
    sizes["non_emb"] = sum(int(count(np.asarray(array))) for array in arrays)
    return HumanReadableDict({"n_params": sum(sizes.values())} | sizes)


count_non0_params = partial(count_params, count=np.count_nonzero)


def scramble_transformer(
    tok_emb: Floats, pos_emb: Floats, out_emb: Floats, layers: Sequence[Layer], lnf: Layer,
    M: Array,
) -> tuple[Floats, Floats, Floats, list[Layer], Layer]:  # fmt: skip
    """Return the same transformer in the basis x @ M of the stream (exercise 1.8).

    M must be orthogonal and fix the vector of ones, which layer norm treats differently.
    """
    program = {"tok_emb": tok_emb, "pos_emb": pos_emb, "out_emb": out_emb, "lnf": lnf}
    new = to_params(rotate(from_params(program | {"layers": list(layers)}), M))
    return new["tok_emb"], new["pos_emb"], new["out_emb"], new["layers"], new["lnf"]


# ── chapter 2: Hello World ─────────────────────────────────────────────────────────────────────
_HELLO = Message()
message = [_HELLO.vocabulary[int(token)] for token in _HELLO.tokens]
tokenizer = {symbol: number for number, symbol in enumerate(_HELLO.vocabulary.tokens)}
detokenizer = dict(enumerate(_HELLO.vocabulary.tokens))


def tokenize(s: Iterable[str]) -> Ints:
    """Return the numbers of the symbols of a list or string (Figure 2.4)."""
    return np.array([_HELLO.vocabulary.index(symbol) for symbol in s], dtype=np.int64)


def detokenize(a: Iterable[int]) -> str:
    """Return the text of token numbers (Figure 2.4)."""
    return _HELLO.vocabulary.decode(a)


def simpleformer(seq: Array, pos_emb: Floats, out_emb: Floats) -> Floats:
    """Return the logits [n, V] of a Simpleformer, which reads positions only (Figure 2.1)."""
    out: Floats = _simpleformer(pos_emb, out_emb)(seq)
    return out


def decode_simpleformer(tokens: Array, pos_emb: Floats, out_emb: Floats, eos: int) -> Ints:
    """Return tokens [n] followed by those of a Simpleformer, up to `eos` (Figure 2.1).

    Decoding also ends after the last position.
    """
    model, tokens = _simpleformer(pos_emb, out_emb), np.asarray(tokens)
    steps = len(pos_emb) + 1 - len(tokens)
    out: Ints = decoding.decode(model, tokens, steps, stop=eos)
    return out


def _simpleformer(pos_emb: Floats, out_emb: Floats) -> Model:
    nothing = np.zeros_like(out_emb)
    return from_params({"tok_emb": nothing, "pos_emb": pos_emb, "out_emb": out_emb, "norm": "none"})


def pos_enc_3d(t: Array) -> Floats:
    """Return the point [3] at the angle t of the circle that layer norm keeps (Figure 2.8).

    Angles [n] give points [3, n].
    """
    return np.moveaxis(craft.circle(np.asarray(t, dtype=float)), -1, 0)


def pos_enc_3d_array(n: int) -> Floats:
    """Return n evenly spaced points [n, 3] of the circle of `pos_enc_3d` (Figure 2.8)."""
    return craft.ring(n)


# ── chapter 3: lookup table ────────────────────────────────────────────────────────────────────
def pos_3d_enc_rotation_matrix(theta: float) -> Floats:
    """Return T [3, 3] with pos_enc_3d(t) @ T = pos_enc_3d(t + theta) (Figure 3.1).

    This is the closed form, 0 on (1, 1, 1). The printed system of equations is singular.
    """
    return craft.shift_matrix(theta, 2 * np.pi)


def build_untied_transformer(
    ks: Array, vs: Array, vocab_size: int, block_size: int, prefix_len: int,
    tok_dims: int, rng: np.random.Generator | None = None,
) -> Params:  # fmt: skip
    """Return LOOKUP TABLE with an output embedding of its own and random hashes (Figure 3.3)."""
    table = _table(ks, vs, vocab_size, prefix_len)
    return to_params(hash_table(table, block_size, tok_dims, rng or np.random.default_rng()))


def logsumexp(x: Array, axis: int = -1) -> Floats:
    """Return log Σ exp(x) along an axis, which is kept with size 1 (Figure 3.4)."""
    return np.logaddexp.reduce(np.asarray(x, dtype=float), axis=axis, keepdims=True)


def loss_and_grad(
    E: Floats, M: Floats, k: Array, v: Array, y: Array
) -> tuple[float, tuple[Floats, Floats]]:
    """Return the loss of a lookup table and its gradients in M and E (Figure 3.4).

    Args:
        E: Token vectors, [V, d].
        M: Hash matrices, [length, d, d]: M[i] is for token i of a key.
        k: Keys, [n, length].
        v: Values, [n].
        y: onehot(v, V).

    Returns:
        The sum of the cross-entropies of the n values, and the pair (dM, dE).
    """
    k, v = np.asarray(k), np.asarray(v)
    if not np.array_equal(y, onehot(v, len(E))):
        raise value_error("loss_and_grad — y", "onehot(v, number of tokens)", y)
    _, (dE, dM) = lookup_book.margin_and_gradients(E, M, k, v)  # of the mean over the keys
    hashes = np.pad(np.einsum("nli,lij->nj", E[k], M), ((0, 0), (0, 3)))
    logits = layer_norm(hashes)[:, : E.shape[1]] @ E.T
    loss = np.sum(logsumexp(logits)[:, 0] - logits[np.arange(len(v)), v])
    return float(loss), (len(k) * dM, len(k) * dE)


def onehot(t: Array, v: int) -> Floats:
    """Return rows of the v x v identity (Figure 3.5)."""
    return np.eye(v)[t]


def optimize(E: Floats, M: Floats, ks: Array, vs: Array, iters: int, lr: float = 1e-3) -> None:
    """Fit E and M to a lookup table by gradient descent, in place (Figure 3.5)."""
    y = onehot(vs, len(E))
    for _ in range(iters):
        E[:] = layer_norm(E)
        _, (dM, dE) = loss_and_grad(E, M, ks, vs, y)
        E -= lr * dE
        M -= lr * dM


def build_lookup_transformer(
    ks: Array, vs: Array, vocab_size: int, block_size: int, tok_dims: int,
    optimization_iters: int, rng: np.random.Generator | None = None,
) -> Params:  # fmt: skip
    """Return LOOKUP TABLE with a tied embedding and fitted hashes (Figure 3.6)."""
    table, rng = _table(ks, vs, vocab_size), rng or np.random.default_rng()
    E = 0.1 * rng.standard_normal((vocab_size, tok_dims))
    M = 0.1 * rng.standard_normal((table.keys.shape[1], tok_dims, tok_dims))
    optimize(E, M, table.keys, table.values, optimization_iters)
    mix = M[::-1]  # head j reads the token j back, the last but j of a key
    model = lookup_book.hashing_layer(table.vocabulary, block_size, layer_norm(E), mix, tied=True)
    return to_params(model)


def _table(ks: Array, vs: Array, vocab_size: int, length: int = 0) -> Table:
    keys, values = np.asarray(ks), np.asarray(vs)
    tokens = np.append(keys.ravel(), values)
    if keys.ndim != 2 or values.shape != keys.shape[:1] or (length and keys.shape[1] != length):
        expected = f"keys [n, {length or 'length'}] and values [n]"
        got = f"{list(keys.shape)} and {list(values.shape)}"
        raise GlassformerError(f"lookup table — expected {expected}, got {got}")
    if tokens.dtype.kind not in "iu" or not (0 <= tokens.min() <= tokens.max() < vocab_size):
        raise value_error("lookup table —", f"whole numbers from 0 to {vocab_size - 1}", ks)
    return Table(keys, values, Vocabulary.numbers(vocab_size))


# ── chapters 4 and 5: search, the minimum, sort ────────────────────────────────────────────────
def padding_block(d: int) -> Floats:
    """Return d numbers, d from 2, that layer norm keeps and a head can overwrite (Figure 4.1)."""
    if d < 2:
        raise value_error("padding_block — d", "at least 2", d)
    return craft.padding(d)


def build_search_transformer(vocab_size: int, block_size: int, prefix_len: int) -> Params:
    """Return SEARCH: the token that came next after the last `prefix_len` (Figure 4.2)."""
    return to_params(book_search(Search(prefix_len, vocab_size, block_size), block_size))


def build_min_transformer(vocab_size: int, block_size: int) -> Params:
    """Return MIN: the smallest number read so far (Figure 5.2)."""
    return to_params(book_extreme("min", vocab_size, block_size))


def stretch(x: Array, mx: float) -> Floats:
    """Return numbers scaled so that the largest is mx (Figure 5.4)."""
    out: Floats = np.asarray(x, dtype=float) * (mx / np.max(x))
    return out


def powerpoints(n: int, mx: float = np.pi) -> Floats:
    """Return n angles from 0 to mx, each half as far from the next as the last (Figure 5.4)."""
    return sort_book.powerpoints(n, 0.5, mx)


def nextpoint(ts: Array) -> Floats:
    """Return angles a quarter of the way from the next powerpoint to the one after (Figure 5.4)."""
    return sort_book.next_points(np.asarray(ts, dtype=float), 0.25, np.pi)


def build_sort_transformer(n: int = 28, block_size: int = 100) -> Params:
    """Return SORT for the numbers below n (Figure 5.5)."""
    return to_params(sort_book.powerpoint_sort(n, n - 1, block=block_size))


# ── chapter 6: addition ────────────────────────────────────────────────────────────────────────
def build_MLP(x0s: Array, a0s: Array) -> tuple[Floats, Floats, Floats, Floats]:
    """Return M1, b1, M2, b2 of an MLP that takes number i to row i of a0s (Figure 6.1)."""
    M1, b1, M2, b2 = craft.spikes(x0s, a0s)
    return M1, b1, M2, b2


def build_single_digit_mod_transformer() -> Params:
    """Return the sum of two digits mod 10 (Figure 6.2)."""
    return to_params(add_digit(10, "book"))


def build_multi_digit_mod_transformer(n_digits: int) -> Params:
    """Return the last digit of the sum of two numbers (Figure 6.3).

    As printed, `+` and `=` have the embedding of 0, so a 0 ties with them.
    """
    return to_params(figure_6_3(n_digits, printed=True))


def build_decimal_addition_transformer(n_digits: int) -> Params:
    """Return the sum of two numbers, digit by digit (Figure 6.4).

    As printed, `+` and `=` have the embedding of 0, so a 0 ties with them.
    """
    return to_params(figure_6_4(n_digits, printed=True))


# ── chapter 7: encodings ───────────────────────────────────────────────────────────────────────
def og_embedding(block_size: int, d: int) -> Floats:
    """Return the positions [block_size, d] of the original Transformer (Figure 7.1)."""
    return craft.sinusoidal(block_size, d)


def og_angles(d: int) -> Floats:
    """Return the d/2 angles of `og_embedding` (Figure 7.5)."""
    return craft.sinusoidal_angles(d)


def rotation_encoding(q: int, thetas: Array) -> Floats:
    """Return rows (cos iθ₁, sin iθ₁, cos iθ₂, …) for i below q (Figure 7.3)."""
    return craft.rotation(q, thetas)


def reversed_rotation_encoding(q: int, thetas: Array) -> Floats:
    """Return `rotation_encoding` with every sine before its cosine (Figure 7.3)."""
    return craft.reversed_rotation(q, thetas)


def shift_by_delta(d: int, delta: float, theta: Array) -> Floats:
    """Return M [d, d] with f(i) @ M = f(i + delta) for a rotation encoding f (Figure 7.4)."""
    M, pairs = np.zeros((d, d)), 2 * (d // 2)
    M[:pairs, :pairs] = craft.rotation_shift(delta, np.asarray(theta)[: d // 2])
    return M


def random_rotation_embedding(q: int, d: int, rng: np.random.Generator | None = None) -> Floats:
    """Return a rotation encoding [q, d] with random angles (Figure 7.7)."""
    return craft.random_rotation(q, d, rng or np.random.default_rng())


def uniform_rotation_embedding(q: int, d: int) -> Floats:
    """Return a rotation encoding [q, d] with evenly spaced angles (exercise 7.8)."""
    return craft.uniform_rotation(q, d)


def standard_padding_dimension(encoding: Floats, epsilon: float = 1e-3) -> int:
    """Return the number of columns that are constant, up to ±epsilon (Figure 7.11)."""
    return craft.padding_dimension(encoding, epsilon)


def random_normal_encoding(q: int, d: int, rng: np.random.Generator | None = None) -> Floats:
    """Return independent normal numbers [q, d] (Figure 7.12)."""
    return craft.random_normal(q, d, rng or np.random.default_rng())


def random_sign_encoding(q: int, d: int, rng: np.random.Generator | None = None) -> Floats:
    """Return independent signs, -1 and 1, [q, d] (Figure 7.12)."""
    return craft.random_sign(q, d, rng or np.random.default_rng())


def all_bit_strings(n: int) -> list[tuple[int, ...]]:
    """Return all tuples of n bits in counting order (Figure 7.14)."""
    return list(itertools.product((0, 1), repeat=n))


def hamming_embedding(r: int) -> Floats:
    """Return the words of the Hamming code with r check bits, as -1 and 1 (Figure 7.14)."""
    return craft.hamming(r)


# ── chapter 8: the interpreter ─────────────────────────────────────────────────────────────────
def compile_TAOTP(program: str) -> Params:
    """Return the params that a text defines, without executing it (Figure 8.1)."""
    return to_params(parse(program))

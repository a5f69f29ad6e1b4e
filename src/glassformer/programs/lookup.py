"""LOOKUP TABLE: memorize any table from keys to values (chapter 3; the default: exercise 3.12)."""

from typing import Annotated, Any, Literal

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Head, Layout, layer_norm, lift, random_isometry, ring
from ..registry import Between, program
from ..tasks.lookup import Entries, Length, Lookup, Seed, Vocab
from ..utils.errors import GlassformerError
from .lookup_book import EPS, tied_lookup
from .lookup_hash import untied_lookup

# Minimum 1 − cos between hashes. Rounding changes it by 1e-15 and 3e-7.
MIN_GAP = {"float64": 1e-10, "float32": 1e-5}


def _float32(options: dict[str, Any]) -> str:
    if options["variant"] != "any":
        return ""  # The rest is a linear map, as accurate as in float64.
    task = Lookup(*(options[name] for name in ("table", "entries", "length", "vocab", "seed")))
    gap = best_hash(task, hash_attempts(task))[1].min()
    if len(task.vocabulary) > 5_000:
        return "beyond a vocabulary of 5,000 tokens are too close on the ring"
    return "" if gap > MIN_GAP["float32"] else f"two hashes are as near as 1 − cos = {gap:.1g}"


@program("lookup", float32=_float32)
def lookup(
    table: str = "", entries: Entries = 10, length: Length = 5, vocab: Vocab = 10, seed: Seed = 0,
    block: Annotated[int, Between(0, 1_000)] = 0, dims: Annotated[int, Between(0, 300)] = 0,
    variant: Literal["any", "hash", "book"] = "any",
) -> Model:  # fmt: skip
    """A table from the last tokens to the next, memorised: table=FILE, xor, sum-mod-10, parity-6,
    or random.

    `block` 0 is twice the length of a key, and for hash and book its length, as in the booklet.
    `dims` (hash, book) is the size of a token's vector; 0 is 100 for hash, and for book 5, 10 or 30
    for up to 10, 100 or more entries.
    """
    task = Lookup(table, entries, length, vocab, seed)
    tokens, n, V = task.key_length, task.entries, len(task.vocabulary)
    block = block or (2 * tokens if variant == "any" else tokens)
    if block < tokens:
        least = f"the length of a key, {tokens}"
        raise GlassformerError(f"block must be 0 or at least {least}, got {block}")
    if dims in (1, 2):
        raise GlassformerError(f"dims must be 0 or at least 3, got {dims}")
    if variant == "hash":
        return untied_lookup(task, block, dims or 100, seed)
    if variant == "book":
        return tied_lookup(task, block, dims or (5 if n <= 10 else 10 if n <= 100 else 30), seed)

    layout = Layout(token=3, position=3)
    token, position, D = layout["token"], layout["position"], layout.size
    config = Config(
        V, block, D, n_heads=tokens, d_head=2, d_mlp=n, activation="relu", eps=EPS, tied=True
    )
    w = zeros(config, "mlp.b_in")
    code = ring(V)
    w["embed.W_E"][:] = layout.row(token=code)
    w["pos_embed.W_pos"][:] = layout.row(position=ring(block, points_per_turn=2 * block))
    mix, gap = best_hash(task, hash_attempts(task))
    if gap.min() < MIN_GAP["float64"]:
        near = f"hashes as near as 1 − cos = {gap.min():.1g}"
        raise GlassformerError(f"two of {n:,} keys have {near}; expected 1e-10")
    heads = {"0.0": "erases the position"}
    for j in range(tokens):
        head = Head(w, 0, j)
        head.attend_back(j, position, 2 * block)
        head.value[token if j else position] = lift(2).T
        head.output[:] = lift(2) @ mix[j] if j else layout.row(position=-lift(2))
        if j:
            heads[f"0.{j}"] = f"hashes the token {j} back"
    u = layer_norm(hash_keys(task, mix), EPS)  # n D
    w["blocks.0.mlp.W_in"][:] = (2 * u / (gap[:, None] * D)).T
    w["blocks.0.mlp.b_in"][:] = 1 - 2 / gap
    shout = 100 * tokens * V  # Hashes have length <= tokens·√3; tokens are 2π/V apart.
    w["blocks.0.mlp.W_out"][:] = shout * layout.row(token=code[task.table.values])
    words, pairs = task.vocabulary, zip(task.table.keys, task.table.values, strict=True)
    entry = [f"{words.decode(key)} -> {words[value]}" for key, value in pairs]
    neurons = {f"0.{i}": name for i, name in enumerate(entry)}
    return Model(config, w, words, task.ref, Labels(layout.slots, heads, neurons))


def hash_keys(task: Lookup, mix: list[Floats]) -> Floats:
    """Return the hash of every key [n, 6]: the sum over j of (the token j back) @ mix[j]."""
    points = ring(len(task.vocabulary))[task.table.keys]  # n l 3
    out = np.zeros((task.entries, 6))
    for j, m in enumerate(mix):
        out = out + points[:, -1 - j] @ m
    return out


def best_hash(task: Lookup, tries: int) -> tuple[list[Floats], Floats]:
    """Return the best of `tries` random hashes.

    The result has its matrices G_j [3, 6] and each key's 1 − cos to the nearest other hash.
    """
    rng, tried = np.random.default_rng(0), []
    for _ in range(tries):
        mix = [np.eye(3, 6)] + [random_isometry(6, rng) for _ in range(task.key_length - 1)]
        tried.append((mix, nearest_gaps(layer_norm(hash_keys(task, mix), EPS))))
    return max(tried, key=lambda found: float(found[1].min()))


def nearest_gaps(u: Floats) -> Floats:
    """Return 1 − cos from each row of u to the nearest other row, [n], at most 1.

    The rows of u [n, D] have length √D.
    """
    out = np.ones(len(u))
    for start in range(0, len(u), 1_000):  # Work in pieces, because n² numbers need much memory.
        cos = u[start : start + 1_000] @ u.T / u.shape[1]
        cos[np.arange(len(cos)), start + np.arange(len(cos))] = -1
        out[start : start + 1_000] = np.minimum(1, 1 - cos.max(1))
    return out


def hash_attempts(task: Lookup) -> int:
    """Return the number of hashes to try, which is smaller if comparing all keys is slow."""
    return 16 if task.entries <= 1_000 else 2

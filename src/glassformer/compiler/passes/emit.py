"""A plan made into weights."""

from typing import Any

import numpy as np

from ...core.model import Config, Labels, Model
from ...core.vocabulary import Vocabulary
from ..embedded_source import BOS as BOS
from ..ir import Token
from .allocate import BASE_DIMS, Plan
from .heads import HeadBuilder, HeadSpec
from .neurons import NeuronBuilder
from .stream import BASE_LENGTH, BOS_DIRECTION, BOS_FACTOR, NORM_EPS, ONE_DIRECTION, EmitSettings

LOGIT_LEAD = 10.0  # of the right logit, where no average is in the stream


class Emitter(HeadBuilder, NeuronBuilder):
    """The weights of a plan."""

    def __init__(self, plan: Plan, settings: EmitSettings | None = None, target: str = "") -> None:
        super().__init__(plan, settings or EmitSettings(), plan.width)
        self.target = target

    # ── the whole ──────────────────────────────────────────────────────────────────────────────
    def norm_scale(self, norm2: float) -> float:
        return float(1 / np.sqrt(norm2 / self.D + NORM_EPS))

    def build_model(self) -> Model:
        """The weights, as small as they can be; for GPT-2 as wide as all heads together."""
        built = self.build_arrays()
        H, K = head_sizes(built[2])
        if self.target == "gpt2":
            shapes = [(h, max(K, -(-self.D // h))) for h in range(H, H + K + 1)]
            H, K = min(shapes, key=lambda shape: shape[0] * shape[1])
            self.D = H * K
            built = self.build_arrays()
        return self.assemble(*built, H, K)

    def build_arrays(self) -> tuple[Any, Any, list[Any]]:
        p, plan, D = self.program, self.plan, self.D
        V, T = len(p.tokens) + 1, p.length + 1
        W_E, W_pos = np.zeros((V, D)), np.zeros((T, D))
        W_E[:, BASE_DIMS] = BASE_LENGTH * ONE_DIRECTION
        W_E[0, BASE_DIMS] += BOS_FACTOR * BASE_LENGTH * BOS_DIRECTION
        for v in plan.computed_at(0):
            rows = self.codes[v][v.table]  # type: ignore[attr-defined]
            (W_E if isinstance(v, Token) else W_pos)[1:, plan.slots[v]] = rows
        self.norm2 = BASE_LENGTH**2 + sum(self.squared_length(v) for v in plan.computed_at(0))
        self.begin = W_E[0] + W_pos[0]
        return W_E, W_pos, [self.build_block(layer) for layer in range(plan.n_layers)]

    def build_block(self, layer: int) -> tuple[list[HeadSpec], Any, list[str]]:
        s, row = self.norm_scale(self.norm2), np.zeros(self.D)
        row[BASE_DIMS] = BOS_DIRECTION
        y = self.begin - self.begin.mean()
        sb = self.norm_scale(float(y @ y))
        y = y * sb
        heads = []
        for h in self.build_heads(layer):
            W_K, W_V = h.k / s, h.v / s
            W_K = W_K + np.outer(row, (h.bos_k - y @ W_K) / (BOS_FACTOR * BASE_LENGTH * sb))
            W_V = W_V + np.outer(row, (h.bos_v - y @ W_V) / (BOS_FACTOR * BASE_LENGTH * sb))
            heads.append(HeadSpec(h.q / s, W_K, h.bos_k, W_V, h.bos_v, h.o, h.name))
            self.begin = self.begin + h.bos_v @ h.o
        self.norm2 += sum(self.squared_length(v) for v in self.plan.computed_at(2 * layer + 1))
        neurons, bias, names = self.build_neurons(layer)
        mlp = None
        if neurons or bias.any():
            if not neurons:
                neurons, names = [(np.zeros(self.D), 0.0, np.zeros(self.D))], [""]
            W_in = np.stack([n[0] for n in neurons], 1) / self.norm_scale(self.norm2)
            b_in, W_out = np.array([n[1] for n in neurons]), np.stack([n[2] for n in neurons])
            y = self.begin - self.begin.mean()
            y = y * self.norm_scale(float(y @ y))
            self.begin = self.begin + np.maximum(y @ W_in + b_in, 0) @ W_out + bias
            mlp = (W_in, b_in, W_out, bias)
        self.norm2 += sum(self.squared_length(v) for v in self.plan.computed_at(2 * layer + 2))
        return heads, mlp, names

    def assemble(self, W_E: Any, W_pos: Any, blocks: list[Any], H: int, K: int) -> Model:
        p, D = self.program, self.D
        F = max([0, *(m[1].size for _, m, _ in blocks if m)])
        positions = "learned" if W_pos.any() else "none"
        config = Config(len(W_E), len(W_pos), D, len(blocks), H, K, F, activation="relu",
                        positions=positions, eps=NORM_EPS)  # fmt: skip
        w = {"embed.W_E": W_E} | ({"pos_embed.W_pos": W_pos} if W_pos.any() else {})
        heads, neurons = dict[str, str](), dict[str, str]()
        for i, (hs, mlp, names) in enumerate(blocks):
            Q, Ks, V = np.zeros((3, H, D, K))
            W_O = np.zeros((H, K, D))
            for j, h in enumerate(hs):
                Q[j, :, : h.q.shape[1]], Ks[j, :, : h.k.shape[1]] = h.q * K**0.5, h.k
                V[j, :, : h.v.shape[1]], W_O[j, : len(h.o)] = h.v, h.o
                heads[f"{i}.{j}"] = h.name
            for name, a in zip(("W_Q", "W_K", "W_V", "W_O"), (Q, Ks, V, W_O), strict=True):
                w[f"blocks.{i}.attn.{name}"] = a
            if mlp:
                pad = F - mlp[1].size
                w[f"blocks.{i}.mlp.W_in"] = np.pad(mlp[0], ((0, 0), (0, pad)))
                w[f"blocks.{i}.mlp.b_in"] = np.pad(mlp[1], (0, pad))
                w[f"blocks.{i}.mlp.W_out"] = np.pad(mlp[2], ((0, pad), (0, 0)))
                w[f"blocks.{i}.mlp.b_out"] = mlp[3]
                neurons |= {f"{i}.{n}": name for n, name in enumerate(names) if name}
        U = np.zeros((D, len(W_E)))
        code = self.codes[p.emit]
        lead = (code**2).sum(1)[:, None] - code @ code.T
        scale = LOGIT_LEAD / max(
            lead[lead > 1e-9].min(initial=1.0) * self.norm_scale(self.norm2), 1e-9
        )
        for i, d in enumerate(p.emit.domain):
            U[self.plan.slots[p.emit], p.tokens.index(d) + 1] = code[i] * scale
        if len(code) == 1:
            U[BASE_DIMS, p.tokens.index(p.emit.domain[0]) + 1] = ONE_DIRECTION * LOGIT_LEAD
        w["unembed.W_U"] = U
        slots = {"base": (0, 3)}
        for v, s in self.plan.slots.items():
            if s.stop > s.start:
                slots[v.name] = (s.start, s.stop)
        vocabulary = Vocabulary([BOS, *map(str, p.tokens)], sep=" ")
        return Model(config, w, vocabulary, labels=Labels(slots, heads, neurons))


def head_sizes(blocks: list[Any]) -> tuple[int, int]:
    """How many heads there must be, and of which size."""
    K = max([1, *(max(h.q.shape[1], h.v.shape[1]) for b, _, _ in blocks for h in b)])
    return max([1, *(len(b) for b, _, _ in blocks)]), K

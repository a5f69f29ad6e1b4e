"""Emit the weights of a plan."""

from typing import Any

import numpy as np

from ...core.model import Config, Labels, Model
from ...core.vocabulary import Vocabulary
from ..embedded_source import BOS
from ..ir import Token
from .allocate import BASE_DIMS, Plan
from .heads import HeadBuilder, HeadSpec
from .neurons import NeuronBuilder
from .stream import BASE_LENGTH, BOS_DIRECTION, BOS_FACTOR, NORM_EPS, ONE_DIRECTION, EmitSettings

LOGIT_LEAD = 10.0  # lead of the correct logit if the stream contains no averages


class Emitter(HeadBuilder, NeuronBuilder):
    """Build a model from a plan, tracking row lengths and the row of <bos> through the layers."""

    def __init__(self, plan: Plan, settings: EmitSettings | None = None, target: str = "") -> None:
        super().__init__(plan, settings or EmitSettings(), plan.width)
        self.target = target

    def norm_scale(self, norm2: float) -> float:
        return float(1 / np.sqrt(norm2 / self.D + NORM_EPS))

    def build_model(self) -> Model:
        """Return the smallest model. For GPT-2, its width is n_heads · d_head."""
        arrays = self.build_arrays()
        H, K = head_sizes(arrays[2])
        if self.target == "gpt2":
            shapes = [(h, max(K, -(-self.D // h))) for h in range(H, H + K + 1)]
            H, K = min(shapes, key=lambda shape: shape[0] * shape[1])
            self.D = H * K
            arrays = self.build_arrays()
        return self.assemble(*arrays, H, K)

    def build_arrays(self) -> tuple[Any, Any, list[Any]]:
        """Return W_E, W_pos, and the heads, MLP and neuron names of each layer."""
        p, plan, D = self.program, self.plan, self.D
        W_E, W_pos = np.zeros((len(p.tokens) + 1, D)), np.zeros((p.length + 1, D))
        W_E[:, BASE_DIMS] = BASE_LENGTH * ONE_DIRECTION
        W_E[0, BASE_DIMS] += BOS_FACTOR * BASE_LENGTH * BOS_DIRECTION
        for v in plan.computed_at(0):
            rows = self.codes[v][v.table]  # type: ignore[attr-defined]
            (W_E if isinstance(v, Token) else W_pos)[1:, plan.slots[v]] = rows
        self.norm2 = BASE_LENGTH**2 + sum(self.squared_length(v) for v in plan.computed_at(0))
        self.bos = W_E[0] + W_pos[0]
        return W_E, W_pos, [self.build_block(layer) for layer in range(plan.n_layers)]

    def build_block(self, layer: int) -> tuple[list[HeadSpec], Any, list[str]]:
        """Scale the heads and neurons of a layer for its norms; set keys and values of <bos>."""
        scale, row = self.norm_scale(self.norm2), np.zeros(self.D)
        row[BASE_DIMS] = BOS_DIRECTION
        y = self.bos - self.bos.mean()
        bos_scale = self.norm_scale(float(y @ y))
        y = y * bos_scale
        length = BOS_FACTOR * BASE_LENGTH * bos_scale
        heads = []
        for h in self.build_heads(layer):
            W_K, W_V = h.k / scale, h.v / scale
            W_K = W_K + np.outer(row, (h.bos_k - y @ W_K) / length)
            W_V = W_V + np.outer(row, (h.bos_v - y @ W_V) / length)
            heads.append(HeadSpec(h.q / scale, W_K, h.bos_k, W_V, h.bos_v, h.o, h.name))
            self.bos = self.bos + h.bos_v @ h.o
        self.norm2 += sum(self.squared_length(v) for v in self.plan.computed_at(2 * layer + 1))
        neurons, bias, names = self.build_neurons(layer)
        mlp = None
        if neurons or bias.any():
            if not neurons:
                neurons, names = [(np.zeros(self.D), 0.0, np.zeros(self.D))], [""]
            W_in = np.stack([n[0] for n in neurons], 1) / self.norm_scale(self.norm2)
            b_in, W_out = np.array([n[1] for n in neurons]), np.stack([n[2] for n in neurons])
            y = self.bos - self.bos.mean()
            y = y * self.norm_scale(float(y @ y))
            self.bos = self.bos + np.maximum(y @ W_in + b_in, 0) @ W_out + bias
            mlp = (W_in, b_in, W_out, bias)
        self.norm2 += sum(self.squared_length(v) for v in self.plan.computed_at(2 * layer + 2))
        return heads, mlp, names

    def assemble(self, W_E: Any, W_pos: Any, blocks: list[Any], H: int, K: int) -> Model:
        """Pad all heads and MLPs to one size, and add the unembedding and the labels."""
        p, D = self.program, self.D
        F = max([0, *(mlp[1].size for _, mlp, _ in blocks if mlp)])
        positions = "learned" if W_pos.any() else "none"
        config = Config(len(W_E), len(W_pos), D, len(blocks), H, K, F, activation="relu",
                        positions=positions, eps=NORM_EPS)  # fmt: skip
        w = {"embed.W_E": W_E} | ({"pos_embed.W_pos": W_pos} if W_pos.any() else {})
        head_labels, neuron_labels = dict[str, str](), dict[str, str]()
        for i, (heads, mlp, names) in enumerate(blocks):
            W_Q, W_K, W_V = np.zeros((3, H, D, K))
            W_O = np.zeros((H, K, D))
            for j, h in enumerate(heads):
                W_Q[j, :, : h.q.shape[1]], W_K[j, :, : h.k.shape[1]] = h.q * K**0.5, h.k
                W_V[j, :, : h.v.shape[1]], W_O[j, : len(h.o)] = h.v, h.o
                head_labels[f"{i}.{j}"] = h.name
            at = f"blocks.{i}.attn."
            w |= {f"{at}W_Q": W_Q, f"{at}W_K": W_K, f"{at}W_V": W_V, f"{at}W_O": W_O}
            if mlp:
                W_in, b_in, W_out, b_out = mlp
                at, pad = f"blocks.{i}.mlp.", (0, F - b_in.size)
                w |= {f"{at}W_in": np.pad(W_in, ((0, 0), pad)), f"{at}b_in": np.pad(b_in, pad),
                      f"{at}W_out": np.pad(W_out, (pad, (0, 0))), f"{at}b_out": b_out}  # fmt: skip
                neuron_labels |= {f"{i}.{n}": name for n, name in enumerate(names) if name}
        w["unembed.W_U"] = self.unembedding(len(W_E))
        slots = {"base": (BASE_DIMS.start, BASE_DIMS.stop)}
        slots |= {v.name: (s.start, s.stop) for v, s in self.plan.slots.items() if s.stop > s.start}
        vocabulary = Vocabulary([BOS, *map(str, p.tokens)], sep=" ")
        return Model(config, w, vocabulary, labels=Labels(slots, head_labels, neuron_labels))

    def unembedding(self, V: int) -> Any:
        """Return W_U [D,V], scaled so that the correct logit leads by at least LOGIT_LEAD."""
        U, tokens, emit = np.zeros((self.D, V)), self.program.tokens, self.program.emit
        code = self.codes[emit]
        lead = (code**2).sum(1)[:, None] - code @ code.T
        smallest = lead[lead > 1e-9].min(initial=1.0)
        scale = LOGIT_LEAD / max(smallest * self.norm_scale(self.norm2), 1e-9)
        for i, d in enumerate(emit.domain):
            U[self.plan.slots[emit], tokens.index(d) + 1] = code[i] * scale
        if len(code) == 1:
            U[BASE_DIMS, tokens.index(emit.domain[0]) + 1] = ONE_DIRECTION * LOGIT_LEAD
        return U


def head_sizes(blocks: list[Any]) -> tuple[int, int]:
    """Return the largest number of heads in a layer, and the largest head dimension."""
    K = max([1, *(max(h.q.shape[1], h.v.shape[1]) for heads, _, _ in blocks for h in heads)])
    return max([1, *(len(heads) for heads, _, _ in blocks)]), K

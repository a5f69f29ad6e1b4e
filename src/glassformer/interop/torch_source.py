"""Generate the source of an exported PyTorch file, which defines a model as a plain nn.Module."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ..core.model import Config, Model
from ..core.vocabulary import NumberTokens, Vocabulary
from .parity import parity_batch
from .tokenizer import stop_token_id

Shapes = Mapping[str, tuple[int, ...]]

# ── parts shared by all models ─────────────────────────────────────────────────────────────────
ARRAYS_CLASS = '''\
class Arrays(nn.Module):
    """Named parameters: Arrays(W=(2, 3)).W is a parameter of shape (2, 3)."""

    def __init__(self, **shapes):
        super().__init__()
        for name, shape in shapes.items():
            part = shape if isinstance(shape, nn.Module) else nn.Parameter(torch.zeros(shape, dtype=DTYPE))
            setattr(self, name, part)'''  # noqa: E501
LOAD_INLINE = '''\
def load():
    """Return the module with the weights in NUMBERS below."""
    model = Transformer()
    shapes = {n: p.shape for n, p in model.named_parameters()}
    model.load_state_dict({n: torch.tensor(NUMBERS[n], dtype=DTYPE).reshape(s) for n, s in shapes.items()})
    return model.eval()'''  # noqa: E501
LOAD_FROM_FILE = '''\
def load(path=Path(__file__).with_suffix(".pt")):
    """Return the module with the weights of the state dict beside this file."""
    model = Transformer()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()'''
GENERATE = '''\
@torch.no_grad()
def generate(model, tokens, steps=STEPS):
    """Generate tokens greedily until STOP."""
    new = []
    for _ in range(steps):
        context = torch.tensor([(tokens + new)[-BLOCK:]], device=model.embed.W_E.device)
        new.append(int(model(context)[0, -1].argmax()))
        if new[-1] == STOP:
            break
    return new'''
SPLIT_TEXT = """\
    longest_first = "|".join(map(re.escape, sorted(VOCABULARY, key=len, reverse=True)))
    words = re.findall(longest_first, text)
    if "".join(words) != text:
        raise ValueError(f"{text!r} is not made of tokens of the vocabulary")"""
MAIN = """\
if __name__ == "__main__":
    for text in sys.argv[1:]:
        print(decode(generate(load(), encode(text))))"""
GELU_NEW = """\
def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))"""


def join_lines(*some: str | Literal[False]) -> str:
    """Join lines, skipping values that are False."""
    return "\n".join(line for line in some if line is not False)


def module_source(model: Model, inline_weights: bool) -> str:
    """Return the source of a model's Python file, with its weights or with code to load NAME.pt."""
    net = network_definitions(model)
    load = LOAD_INLINE if inline_weights else LOAD_FROM_FILE
    header = _file_header(model, "\n".join(net), inline_weights)
    parts = [header, *net, load, GENERATE, *_vocabulary_functions(model.vocabulary)]
    parts += [weights_source(model.weights), MAIN] if inline_weights else [MAIN]
    return "\n\n\n".join(parts) + "\n"


def network_definitions(model: Model) -> list[str]:
    """Return the class definitions up to Transformer, and their helper functions."""
    c, weights = model.config, model.weights
    kinds: dict[tuple[str, ...], str] = {}  # weight names of a block -> class name
    for i in range(c.n_layers):
        kinds.setdefault(tuple(_names_under(weights, f"blocks.{i}.")), "")
    for n, kind in enumerate(kinds):
        letter = f"{'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[n % 26]}{n // 26 or ''}"
        kinds[kind] = "Block" if len(kinds) == 1 else f"Block{letter}"
    blocks = [kinds[tuple(_names_under(weights, f"blocks.{i}."))] for i in range(c.n_layers)]
    shapes = {n: tuple(w.shape) for n, w in weights.items()}
    firsts = {name: f"blocks.{blocks.index(name)}." for name in kinds.values()}
    classes = []
    for kind, name in kinds.items():
        classes.append(_block(c, name, {n: shapes[firsts[name] + n] for n in kind}))
    return [ARRAYS_CLASS, *classes, _transformer(c, shapes, blocks), *_helper_functions(c, weights)]


# ── parts ──────────────────────────────────────────────────────────────────────────────────────
def _file_header(model: Model, net: str, inside: bool) -> str:
    batch = parity_batch(model)
    steps = int(batch.answer_mask.sum(1).max()) if batch.has_task else model.config.n_ctx
    return join_lines(
        '"""A transformer as a plain PyTorch module, with every step written out. '
        "It needs torch alone.",
        "",
        f"    {model.config}",
        "",
        "    model = load()",
        "    model(tokens)            # integers [B,T] -> logits [B,T,V]",
        "    generate(model, encode(text), steps)",
        "",
        "B batch, T positions, S keys, D d_model, H heads, K d_head, F neurons, V d_vocab.",
        '"""',
        "",
        "math." in net and "import math",
        not model.vocabulary.sep and "import re",
        "import sys",
        not inside and "from pathlib import Path",
        "",
        *torch_imports(net),
        "",
        f"MADE_FROM = {model.name!a}",
        f"DTYPE = torch.{model.dtype}",
        f"BLOCK = {model.config.n_ctx}  # context length",
        f"STOP = {stop_token_id(model)}  # the token that ends an answer",
        f"STEPS = {steps}  # maximum number of new tokens",
    )


def torch_imports(net: str) -> list[str]:
    """Return the import lines needed by the source of a network."""
    functional = ["import torch.nn.functional as F"] if re.search(r"\bF\.", net) else []
    return ["import torch", *functional, "from torch import nn"]


def _block(c: Config, name: str, shapes: Shapes) -> str:
    def plus(n: str) -> str:
        return f" + self.{n}" if n in shapes else ""

    def around(place: str, method: str) -> str:
        pre_norm = f"x + self.{method}({_norm(c, shapes, 'x', place)})"
        post_norm = _norm(c, shapes, f"x + self.{method}(x)", place)
        return f"        x = {pre_norm if c.norm_first else post_norm}"

    mlp, scale = "mlp.W_out" in shapes, c.scale or c.d_head**-0.5
    q, k = (_norm(c, shapes, x, f"attn.{x}_norm") for x in "qk")
    activation = "gelu_new" if c.activation == "gelu_new" else f"F.{c.activation}"
    return join_lines(
        f"class {name}(nn.Module):",
        *_init_method(shapes, dict.fromkeys(n.split(".")[0] for n in shapes)),
        "",
        "    def forward(self, x):  # [B,T,D]",
        around("ln1", "attention"),
        mlp and around("ln2", "feed_forward"),
        "        return x",
        "",
        "    def attention(self, x):",
        *(f'        {x} = torch.einsum("btd,hdk->bthk", x, self.attn.W_{X}){plus(f"attn.b_{X}")}'
          for x, X in zip("qkv", "QKV", strict=True)),
        c.qk_norm and q != "q" and f"        q, k = {q}, {k}",
        c.positions == "rotary" and "        q, k = rotate(q), rotate(k)",
        '        scores = torch.einsum("bthk,bshk->bhts", q, k)' + f" * {scale!r}" * (scale != 1),
        (c.positions == "alibi" or c.mask == "causal") and join_lines(
            "        at = torch.arange(x.shape[1], device=x.device)",
            "        behind = at[:, None] - at  # [T,S]: distance of key behind query"
        ),
        c.positions == "alibi" and "        scores = scores - SLOPES.to(x)[:, None, None] * "
                                   "behind.abs()",
        c.mask == "causal" and '        scores = scores.masked_fill(behind < 0, float("-inf"))',
        "        pattern = scores.softmax(-1)  # [B,H,T,S]",
        '        z = torch.einsum("bhts,bshk->bthk", pattern, v)',
        f'        return torch.einsum("bthk,hkd->btd", z, self.attn.W_O){plus("attn.b_O")}',
        mlp and join_lines(
            "",
            "    def feed_forward(self, x):",
            f"        a = {activation}(x @ self.mlp.W_in{plus('mlp.b_in')})  # [B,T,F]",
            "mlp.W_gate" in shapes and f"        a = a * (x @ self.mlp.W_gate{plus('mlp.b_gate')})",
            f"        return a @ self.mlp.W_out{plus('mlp.b_out')}"
        ),
    )  # fmt: skip


def _transformer(c: Config, shapes: Shapes, blocks: list[str]) -> str:
    block_list = ", ".join(f"{b}()" for b in blocks)
    if len(set(blocks)) == 1:
        block_list = f"{blocks[0]}() for _ in range({len(blocks)})"
    final = _norm(c, shapes, "x", "ln_final") if c.norm_first else "x"
    head = "self.embed.W_E.T" if c.tied else "self.unembed.W_U"
    return join_lines(
        "class Transformer(nn.Module):",
        *_init_method(shapes, ("embed", "pos_embed")),
        bool(blocks) and f"        self.blocks = nn.ModuleList([{block_list}])",
        *_init_method(shapes, ("ln_final", "unembed"))[2:],
        "",
        "    def forward(self, tokens):  # [B,T]",
        "        x = self.embed.W_E[tokens]  # [B,T,D]",
        c.positions == "learned" and "        x = x + self.pos_embed.W_pos[: tokens.shape[1]]",
        c.positions == "sinusoidal" and "        x = x + positions(tokens.shape[1]).to(x)",
        bool(blocks) and "        for block in self.blocks:\n            x = block(x)",
        final != "x" and f"        x = {final}",
        f"        return x @ {head}" + (" + self.unembed.b_U" if "unembed.b_U" in shapes else ""),
    )


def _helper_functions(c: Config, weights: Mapping[str, Any]) -> list[str]:
    parts: list[str] = []
    if c.norm == "rms":
        root = f"((x * x).mean(-1, keepdim=True) + {float(c.eps)!r}).sqrt()"
        parts.append(f"def rms_norm(x):\n    return x / {root}")
    if c.activation == "gelu_new" and any(n.endswith("mlp.W_in") for n in weights):
        parts.append(GELU_NEW)
    if c.positions == "rotary" and c.n_layers:
        n = c.d_head // 2
        parts.append(join_lines(
            "def rotate(x):  "
            "# [B,T,H,K]: rotate the pairs (i, i + K/2) by position",
            f"    i = torch.arange({n}, dtype=torch.float64, device=x.device)",
            "    at = torch.arange(x.shape[1], device=x.device)[:, None, None]  # [T,1,1]",
            f"    angles = at * {float(c.base)!r} ** (-i / {max(n, 1)})  # [T,1,K/2]",
            "    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)",
            f"    u, v, odd = x[..., :{n}], x[..., {n}:{2 * n}], x[..., {2 * n}:]",
            "    return torch.cat([u * cos - v * sin, v * cos + u * sin, odd], -1)",
        ))  # fmt: skip
    if c.positions == "sinusoidal":
        n = c.d_model // 2
        parts.append(join_lines(
            "def positions(T):  # [T,D]: sines and cosines",
            f"    i = torch.arange({n}, dtype=torch.float64)",
            f"    angles = torch.arange(T)[:, None] * {float(c.base)!r} ** (-i / {n})",
            f"    return torch.stack([angles.sin(), angles.cos()], -1).reshape(T, {c.d_model})",
        ))  # fmt: skip
    if c.positions == "alibi" and c.n_layers:
        slopes = [c.slope * 2.0 ** (-8 * h / c.n_heads) for h in range(1, c.n_heads + 1)]
        comment = "# alibi slope of each head"
        parts.append(f"SLOPES = torch.tensor({slopes!r}, dtype=DTYPE)  {comment}")
    return parts


def _vocabulary_functions(v: Vocabulary) -> list[str]:
    if isinstance(v.tokens, NumberTokens):
        tokens = f"[str(i) for i in range({v.tokens.first}, {v.tokens.first + len(v)})]"
    else:
        tokens = "[" + ", ".join(map(ascii, v.tokens)) + "]"
    separator = "" if v.sep.isspace() else ascii(v.sep)
    split = f"    words = text.split({separator})" if v.sep else SPLIT_TEXT
    index = "    return [VOCABULARY.index(word) for word in words]"
    encode = join_lines("def encode(text):", split, index)
    decode = f"def decode(tokens):\n    return {v.sep!a}.join(VOCABULARY[t] for t in tokens)"
    return [f"VOCABULARY = {tokens}", encode, decode]


def weights_source(weights: Mapping[str, Any]) -> str:
    out = ["NUMBERS = {"]
    for name, w in weights.items():
        rows = w.reshape(-1, w.shape[-1]) if w.size else w[:0].reshape(0, 1)
        out += [f"    # {' × '.join(map(str, w.shape))}", f"    {name!a}: ["]
        out += ["        " + " ".join(f"{float(x)!r}," for x in row) for row in rows]
        out.append("    ],")
    return join_lines(*out, "}")


# ── helpers ────────────────────────────────────────────────────────────────────────────────────
def _norm(c: Config, shapes: Shapes, x: str, place: str) -> str:
    """Return an expression that applies the norm layer of a place to the expression x."""
    w, b = f"{place}.w" in shapes, f"{place}.b" in shapes
    if c.norm == "none":
        return x
    if c.norm == "rms":
        return f"rms_norm({x})" + f" * self.{place}.w" * w + f" + self.{place}.b" * b
    size = f"({c.d_head if '_norm' in place else c.d_model},)"
    arguments = f", weight=self.{place}.w" * w + f", bias=self.{place}.b" * b
    return f"F.layer_norm({x}, {size}{arguments}, eps={float(c.eps)!r})"


def _init_method(shapes: Shapes, places: Iterable[str]) -> list[str]:
    """Return the lines of __init__, with an Arrays(…) for each place that has weights."""
    present = [p for p in places if _names_under(shapes, p + ".")]
    assignments = [f"        self.{p} = {_arrays_call(shapes, p)}" for p in present]
    return ["    def __init__(self):", "        super().__init__()", *assignments]


def _arrays_call(shapes: Shapes, place: str) -> str:
    """Return the Arrays(…) expression of a place, including nested Arrays."""
    names = _names_under(shapes, place + ".")
    arguments = [f"{n}={shapes[f'{place}.{n}']}" for n in names if "." not in n]
    deeper = dict.fromkeys(n.split(".")[0] for n in names if "." in n)
    arguments += [f"{n}={_arrays_call(shapes, f'{place}.{n}')}" for n in deeper]
    return f"Arrays({', '.join(arguments)})"


def _names_under(names: Iterable[str], place: str) -> list[str]:
    return [n.removeprefix(place) for n in names if n.startswith(place)]

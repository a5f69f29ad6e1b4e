"""The text of the PyTorch file: what a model is, written out as a plain nn.Module, line by line."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..model import Config, Model
from ..vocabulary import Numbers, Vocabulary
from .parity import task_of, trial

Lines = list[str]


def source(model: Model, inside: bool) -> str:
    """Python for the model. inside: its numbers stand in the text, else load() reads a .pt file of the same name."""
    parts = [_top(model, inside), *network(model), _load(inside), _text(model.vocabulary)]
    if inside:
        parts.append(numbers(model.weights))
    parts.append(_main())
    return "\n\n\n".join("\n".join(p) for p in parts if p) + "\n"


def network(model: Model) -> list[Lines]:
    """The definitions up to the class Transformer and the functions that it calls."""
    c, weights = model.config, model.weights
    kinds: dict[tuple[str, ...], str] = {}  # what a block has -> the class of such blocks
    for i in range(c.n_layers):
        kinds.setdefault(tuple(_inside(weights, f"blocks.{i}.")), "")
    for n, kind in enumerate(kinds):
        kinds[kind] = "Block" if len(kinds) == 1 else f"Block{'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[n % 26]}{n // 26 or ''}"
    blocks = [kinds[tuple(_inside(weights, f"blocks.{i}."))] for i in range(c.n_layers)]
    shapes = {n: tuple(w.shape) for n, w in weights.items()}
    parts = [_arrays_class()]
    for kind, name in kinds.items():
        i = blocks.index(name)
        parts.append(_block(c, name, {n: shapes[f"blocks.{i}.{n}"] for n in kind}))
    return [*parts, _transformer(c, shapes, blocks), _helpers(c, weights)]


# ── parts ──────────────────────────────────────────────────────────────────────────────────────
def _top(model: Model, inside: bool) -> Lines:
    c = model.config
    task = task_of(model)
    stop = None if task is None else task.stop
    imports = ["import math"] * uses_math(model)
    imports += ["import re"] * (not model.vocabulary.sep) + ["import sys"]
    imports += ["from pathlib import Path"] * (not inside)
    return [
        '"""A transformer as a plain PyTorch module, with every step written out. It needs torch alone.',
        "",
        f"    {c}",
        "",
        "    model = load()",
        "    model(tokens)            # whole numbers [B,T] -> logits [B,T,V]",
        "    generate(model, encode(text), steps)",
        "",
        "B batch, T positions, S keys, D width of the stream, H heads, K head size, F neurons, V vocabulary.",
        '"""',
        "",
        *imports,
        "",
        "import torch",
        *(["import torch.nn.functional as F"] * uses_functional(model)),
        "from torch import nn",
        "",
        f"MADE_FROM = {_quoted(str(model.provenance.get('ref') or model.task))}",
        f"DTYPE = torch.{model.dtype}",
        f"BLOCK = {c.n_ctx}  # positions it can read",
        f"STOP = {stop}  # the token that ends an answer",
        f"STEPS = {_steps(model)}  # tokens to produce, at most",
    ]


def _arrays_class() -> Lines:
    return [
        "class Arrays(nn.Module):",
        '    """Named parameters: Arrays(W=(2, 3)).W is one of that shape."""',
        "",
        "    def __init__(self, **shapes):",
        "        super().__init__()",
        "        for name, shape in shapes.items():",
        "            part = shape if isinstance(shape, nn.Module) else nn.Parameter(torch.zeros(shape, dtype=DTYPE))",
        "            setattr(self, name, part)",
    ]


def _block(c: Config, name: str, shapes: Mapping[str, tuple[int, ...]]) -> Lines:
    def there(n: str) -> bool:
        return n in shapes

    def plus(n: str) -> str:
        return f" + self.{n}" if there(n) else ""

    def normed(x: str, place: str) -> str:
        return _norm(c, x, f"self.{place}", there(f"{place}.w"), there(f"{place}.b"))

    def around(place: str, method: str) -> Lines:
        before, after = f"x = x + self.{method}({normed('x', place)})", f"x = {normed(f'x + self.{method}(x)', place)}"
        return ["        " + (before if c.norm_first else after)]

    mlp = there("mlp.W_out")
    lines = [f"class {name}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    for place in dict.fromkeys(n.split(".")[0] for n in shapes):
        lines.append(f"        self.{place} = {_arrays(shapes, place)}")
    lines += ["", "    def forward(self, x):  # [B,T,D]"]
    lines += around("ln1", "attention")
    lines += around("ln2", "feed_forward") if mlp else []
    lines += ["        return x", "", "    def attention(self, x):"]
    for n in "QKV":
        lines.append(f'        {n.lower()} = torch.einsum("btd,hdk->bthk", x, self.attn.W_{n}){plus(f"attn.b_{n}")}')
    if c.qk_norm:
        q, k = normed("q", "attn.q_norm"), normed("k", "attn.k_norm")
        lines += [f"        q, k = {q}, {k}"] if q != "q" else []
    if c.positions == "rotary":
        lines.append("        q, k = rotate(q), rotate(k)")
    scale = c.scale or c.d_head**-0.5
    lines.append('        scores = torch.einsum("bthk,bshk->bhts", q, k)' + f" * {scale!r}" * (scale != 1))
    if c.positions == "alibi" or c.mask == "causal":
        lines.append("        at = torch.arange(x.shape[1], device=x.device)")
        lines.append("        behind = at[:, None] - at  # [T,S]: how far each key is behind each query")
    if c.positions == "alibi":
        lines.append("        scores = scores - SLOPES.to(x)[:, None, None] * behind.abs()")
    if c.mask == "causal":
        lines.append('        scores = scores.masked_fill(behind < 0, float("-inf"))')
    lines += [
        "        pattern = scores.softmax(-1)  # [B,H,T,S]",
        '        z = torch.einsum("bhts,bshk->bthk", pattern, v)',
        f'        return torch.einsum("bthk,hkd->btd", z, self.attn.W_O){plus("attn.b_O")}',
    ]
    if mlp:
        activated = _activation(c, f"x @ self.mlp.W_in{plus('mlp.b_in')}")
        lines += ["", "    def feed_forward(self, x):", f"        a = {activated}  # [B,T,F]"]
        if there("mlp.W_gate"):
            lines.append(f"        a = a * (x @ self.mlp.W_gate{plus('mlp.b_gate')})")
        lines.append(f"        return a @ self.mlp.W_out{plus('mlp.b_out')}")
    return lines


def _transformer(c: Config, shapes: Mapping[str, tuple[int, ...]], blocks: Lines) -> Lines:
    lines = ["class Transformer(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    for place in ("embed", "pos_embed"):
        lines += [f"        self.{place} = {_arrays(shapes, place)}"] if _inside(shapes, place + ".") else []
    if len(set(blocks)) == 1:
        made = f"{blocks[0]}() for _ in range({len(blocks)})"
    else:
        made = ", ".join(f"{b}()" for b in blocks)
    lines += [f"        self.blocks = nn.ModuleList([{made}])"] if blocks else []
    for place in ("ln_final", "unembed"):
        lines += [f"        self.{place} = {_arrays(shapes, place)}"] if _inside(shapes, place + ".") else []
    lines += ["", "    def forward(self, tokens):  # [B,T]", "        x = self.embed.W_E[tokens]  # [B,T,D]"]
    lines += {
        "learned": ["        x = x + self.pos_embed.W_pos[: tokens.shape[1]]"],
        "sinusoidal": ["        x = x + positions(tokens.shape[1]).to(x)"],
    }.get(c.positions, [])
    if blocks:
        lines += ["        for block in self.blocks:", "            x = block(x)"]
    final = _norm(c, "x", "self.ln_final", "ln_final.w" in shapes, "ln_final.b" in shapes) if c.norm_first else "x"
    lines += [f"        x = {final}"] if final != "x" else []
    head = "self.embed.W_E.T" if c.tied else "self.unembed.W_U"
    lines.append(f"        return x @ {head}" + (" + self.unembed.b_U" if "unembed.b_U" in shapes else ""))
    return lines


def _helpers(c: Config, weights: Mapping[str, Any]) -> Lines:
    """The functions that some parts call, where they do."""
    parts: list[Lines] = []
    if c.norm == "rms":
        parts.append(["def rms_norm(x):", f"    return x / ((x * x).mean(-1, keepdim=True) + {float(c.eps)!r}).sqrt()"])
    if c.activation == "gelu_new" and any(n.endswith("mlp.W_in") for n in weights):
        parts.append([
            "def gelu_new(x):",
            "    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))",
        ])  # fmt: skip
    if c.positions == "rotary" and c.n_layers:
        n = c.d_head // 2
        parts.append([
            "def rotate(x):  # [B,T,H,K]: turns the pairs (i, i + K/2) by angles that grow with the position",
            f"    i = torch.arange({n}, dtype=torch.float64, device=x.device)",
            "    at = torch.arange(x.shape[1], device=x.device)[:, None, None]  # [T,1,1]",
            f"    angles = at * {float(c.base)!r} ** (-i / {max(n, 1)})  # [T,1,K/2]",
            "    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)",
            f"    u, v, odd = x[..., :{n}], x[..., {n}:{2 * n}], x[..., {2 * n}:]",
            "    return torch.cat([u * cos - v * sin, v * cos + u * sin, odd], -1)",
        ])  # fmt: skip
    if c.positions == "sinusoidal":
        n = c.d_model // 2
        parts.append([
            "def positions(T):  # [T,D]: sines and cosines in turn",
            f"    i = torch.arange({n}, dtype=torch.float64)",
            f"    angles = torch.arange(T)[:, None] * {float(c.base)!r} ** (-i / {n})",
            f"    return torch.stack([angles.sin(), angles.cos()], -1).reshape(T, {c.d_model})",
        ])  # fmt: skip
    if c.positions == "alibi" and c.n_layers:
        slopes = [c.slope * 2.0 ** (-8 * h / c.n_heads) for h in range(1, c.n_heads + 1)]
        parts.append([f"SLOPES = torch.tensor({slopes!r}, dtype=DTYPE)  # alibi: a score falls with distance, by head"])
    return "\n\n\n".join("\n".join(p) for p in parts).split("\n") if parts else []


def _load(inside: bool) -> Lines:
    read = [
        "def load():",
        '    """The module with its numbers, which are further down in this file."""',
        "    model = Transformer()",
        "    shapes = {n: p.shape for n, p in model.named_parameters()}",
        "    model.load_state_dict({n: torch.tensor(NUMBERS[n], dtype=DTYPE).reshape(s) for n, s in shapes.items()})",
    ]
    if not inside:
        read = [
            'def load(path=Path(__file__).with_suffix(".pt")):',
            '    """The module with its numbers, a state dict beside this file."""',
            "    model = Transformer()",
            "    model.load_state_dict(torch.load(path, weights_only=True))",
        ]
    return [
        *read,
        "    return model.eval()",
        "",
        "",
        "@torch.no_grad()",
        "def generate(model, tokens, steps=STEPS):",
        '    """The tokens that the model adds: always the best one, until STOP."""',
        "    said = []",
        "    for _ in range(steps):",
        "        read = torch.tensor([(tokens + said)[-BLOCK:]], device=model.embed.W_E.device)",
        "        said.append(int(model(read)[0, -1].argmax()))",
        "        if said[-1] == STOP:",
        "            break",
        "    return said",
    ]


def _text(v: Vocabulary) -> Lines:
    if isinstance(v.tokens, Numbers):
        tokens = f"[str(i) for i in range({v.tokens.first}, {v.tokens.first + len(v)})]"
    else:
        tokens = "[" + ", ".join(map(_quoted, v.tokens)) + "]"
    split = [f"    words = text.split({'' if v.sep.isspace() else _quoted(v.sep)})"]
    if not v.sep:
        split = [
            '    longest_first = "|".join(map(re.escape, sorted(VOCABULARY, key=len, reverse=True)))',
            "    words = re.findall(longest_first, text)",
            '    if "".join(words) != text:',
            '        raise ValueError(f"{text!r} has what is not in the vocabulary")',
        ]
    return [
        f"VOCABULARY = {tokens}",
        "",
        "",
        "def encode(text):",
        *split,
        "    return [VOCABULARY.index(word) for word in words]",
        "",
        "",
        "def decode(tokens):",
        f"    return {_quoted(v.sep)}.join(VOCABULARY[t] for t in tokens)",
    ]


def numbers(weights: Mapping[str, Any]) -> Lines:
    lines = ["NUMBERS = {"]
    for name, w in weights.items():
        rows = w.reshape(-1, w.shape[-1]) if w.size else w[:0].reshape(0, 1)
        lines.append(f"    # {' × '.join(map(str, w.shape))}")
        lines.append(f"    {_quoted(name)}: [")
        lines += ["        " + " ".join(f"{float(x)!r}," for x in row) for row in rows]
        lines.append("    ],")
    return [*lines, "}"]


def _main() -> Lines:
    return [
        'if __name__ == "__main__":',
        "    for text in sys.argv[1:]:",
        "        print(decode(generate(load(), encode(text))))",
    ]


# ── pieces ─────────────────────────────────────────────────────────────────────────────────────
def _norm(c: Config, x: str, place: str, w: bool, b: bool) -> str:
    """The norm of an expression, as an expression."""
    if c.norm == "none":
        return x
    if c.norm == "rms":
        return f"rms_norm({x})" + f" * {place}.w" * w + f" + {place}.b" * b
    size = f"({c.d_head if '_norm' in place else c.d_model},)"
    given = f", weight={place}.w" * w + f", bias={place}.b" * b
    return f"F.layer_norm({x}, {size}{given}, eps={float(c.eps)!r})"


def _activation(c: Config, x: str) -> str:
    if c.activation == "gelu_new":
        return f"gelu_new({x})"
    return f"F.{c.activation}({x})"


def _arrays(shapes: Mapping[str, tuple[int, ...]], place: str) -> str:
    """Arrays(…) with what stands under a place; places within it are Arrays of their own."""
    names = _inside(shapes, place + ".")
    given = [f"{n}={shapes[f'{place}.{n}']}" for n in names if "." not in n]
    deeper = dict.fromkeys(n.split(".")[0] for n in names if "." in n)
    given += [f"{n}={_arrays(shapes, f'{place}.{n}')}" for n in deeper]
    return f"Arrays({', '.join(given)})"


def _inside(names: Iterable[str], place: str) -> list[str]:
    return [n.removeprefix(place) for n in names if n.startswith(place)]


def _has(model: Model, name: str) -> bool:
    return any(n.endswith(name) for n in model.weights)


def uses_math(model: Model) -> bool:
    return model.config.activation == "gelu_new" and _has(model, "mlp.W_in")


def uses_functional(model: Model) -> bool:
    return model.config.norm == "layer" or (model.config.activation != "gelu_new" and _has(model, "mlp.W_in"))


def _steps(model: Model) -> int:
    batch = trial(model)
    return int(batch.asked.sum(1).max()) if batch.known else model.config.n_ctx


def _quoted(text: str) -> str:
    return ascii(text)

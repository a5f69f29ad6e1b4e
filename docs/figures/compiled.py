"""Draw the figures of the chapter on compiling and of docs/compiler.md.

compiled_follows.png   values of the interpreter and attention of the compiled heads
compiled_codes.png     codes of values in the stream
compiled_errors.png    proved errors of slots, sublayer by sublayer
"""

import numpy as np
from current import put

import glassformer as gf
from glassformer import compiler
from glassformer.compiler import library
from glassformer.compiler.passes.encode import make_code
from glassformer.craft import lift
from glassformer.plotting import style
from glassformer.plotting.helpers import log_axis

style.DPI = 100
FOLLOWS = """
tokens = [*"abc"]
length = 8
before = only(token, position == here.position - 1)
emit   = latest(token, before == here.token, default="a")
"""
TEXT = "a b c b a c b"


def save(fig, name):
    put(fig, f"compiled_{name}.png")


def attention():
    """Draw the values of a text, and the attention of the two heads."""
    compiled = compiler.compile(FOLLOWS, "follows")
    words = TEXT.split()
    numbers = np.array([[compiled.program.tokens.index(w) for w in words]])
    rows = [
        (v.name, ["–" if v.domain[i] is None else str(v.domain[i]) for i in members[0]])
        for v, members in compiler.trace(compiled.program, numbers).items()
        if v.name in ("position", "token", "before", "emit")
    ]
    with style.style_context():
        fig, (left, *heads) = style.figure(1, 3, (9.0, 3.8))
        left.axis("off")
        left.set_title("the interpreter")
        left.set_xlim(-3.6, len(words))
        left.set_ylim(len(rows) - 0.3, -0.7)
        for y, (name, cells) in enumerate(rows):
            left.text(-1.0, y, name, ha="right", va="center")
            for x, cell in enumerate(cells):
                bold = "bold" if name == "emit" else "normal"
                left.text(x, y, cell, ha="center", va="center", weight=bold)
        _, cache = gf.record(compiled.model, "<bos> " + TEXT)
        for layer, ax in enumerate(heads):
            pattern = np.asarray(cache[f"blocks.{layer}.attn.hook_pattern"])[0, 0]
            ax.imshow(pattern, cmap=style.SHARE_COLORMAP, vmin=0, vmax=1)
            ticks = ["^", *words]
            ax.set_xticks(range(len(ticks)), ticks)
            ax.set_yticks(range(len(ticks)), ticks)
            ax.set_xlabel("key position")
            ax.set_title(f"head {layer}.0: {compiled.model.labels.heads[f'{layer}.0']}")
    save(fig, "follows")


def codes():
    """Draw each kind of code for eight members, in the plane (or two) it spans."""
    n, numbers = 8, list(range(8))
    with style.style_context():
        fig, axes = style.figure(2, 3, (8.0, 5.4))
        for ax, kind in zip(
            axes, ("bit", "ring", "torus", "number", "square", "simplex"), strict=True
        ):
            ax.set_title({
                "bit": "bit: two members", "ring": "ring: equal or not",
                "torus": "torus: farther apart", "number": "number: order and sums",
                "square": "square: a position to attend to", "simplex": "simplex: anything",
            }[kind])  # fmt: skip
            code = make_code(kind, numbers[:2] if kind == "bit" else numbers)
            if kind in ("bit", "simplex"):
                big = np.abs(code).max()
                ax.imshow(code, cmap=style.SIGNED_COLORMAP, vmin=-big, vmax=big)
                ax.set_xlabel("slot dimension")
                ax.set_ylabel("member")
                ax.set_xticks(range(code.shape[1]))
                ax.set_yticks(range(len(code)))
                continue
            points = code @ lift(code.shape[1] - 1).T
            pairs = [(0, 1), (2, 3)] if kind == "torus" else [(0, 1)]
            for (x, y), color in zip(pairs, (style.BLUE, style.ORANGE), strict=False):
                shift = 4.2 * (x > 0)
                ax.scatter(points[:, x] + shift, points[:, y], s=18, color=color)
                for i in range(n):
                    at = points[i, [x, y]] * 1.22 + [shift, 0]
                    ax.annotate(str(i), at, ha="center", va="center", fontsize=8)
            ax.set_aspect("equal")
            ax.margins(0.25)
            ax.set_xticks([])
            ax.set_yticks([])
            if kind in ("number", "square"):
                ax.set_xlabel("linear in the number")
                ax.set_ylabel("its square" if kind == "square" else "keeps the length")
    save(fig, "codes")


def draw_errors():
    """Draw the proved error of each value of a program, in both float types."""
    name = "second-most-frequent"
    text = library.source_paths()[name].read_text("utf-8")
    with style.style_context():
        fig, (ax,) = style.figure(1, 1, (7.0, 3.2))
        for dtype, color, mark in (("float64", style.BLUE, "o"), ("float32", style.ORANGE, "s")):
            compiled = compiler.compile(text, name, dtype=dtype)
            timed = compiled.model.provenance["compiled"]["values"]
            times = {compiled.program.values[max(i, -1 - i)].name: time for i, time, *_ in timed}
            errors = compiled.certificate.slot_error
            order = sorted(errors, key=lambda v: times[v])
            ax.plot(range(len(order)), [errors[v] for v in order], mark, color=color, label=dtype)
        ax.set_xticks(range(len(order)), [f"{v}\n{when(times[v])}" for v in order])
        log_axis(ax)
        ax.set_ylim(1e-17, 1)
        ax.set_ylabel("proved bound on the error")
        ax.legend(loc="upper left")
        ax.set_title(f"{name}: proved error of each value")
    save(fig, "errors")


def when(time):
    return (
        "embedding" if time == 0 else f"{'neurons' if time % 2 == 0 else 'head'} {(time - 1) // 2}"
    )


attention()
codes()
draw_errors()

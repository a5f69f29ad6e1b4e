"""Drawing of a transformer as boxes and arrows, from tokens at the bottom to the next token."""

from .. import generate
from ..coerce import ModelLike, as_model
from ..core.model import Model
from .api import returns_picture
from .style import BLUE, GRAY, GREEN, INK, ORANGE, PALE, PURPLE, SKY, Axes, Figure, drawing

BOX_WIDTH, BOX_HEIGHT = 2.7, 0.56
PLUS_RADIUS, TEXT_HEIGHT = 0.17, 0.3
GAP, BRANCH_GAP = 0.34, 0.62  # length of an arrow, and of one from which a residual branches off
BYPASS, POSITIONS_X, FRAME_RIGHT = 1.75, 3.1, 3.7  # distances from the middle
WIDTH_INCHES = 6.2
NORM_NAMES = {"layer": "layer norm", "rms": "RMS norm", "none": ""}
ADDED_POSITIONS = ("learned", "sinusoidal")


class Stack:
    """Boxes one above the other, joined by arrows."""

    def __init__(self, ax: Axes) -> None:
        self.ax, self.top = ax, 0.0

    def raise_to(self, half: float, gap: float = GAP) -> float:
        """Draw an arrow to the next part, which is 2 · half high, and return its middle."""
        if self.top:
            self.arrow((0, self.top), (0, self.top + gap))
        self.top += gap + 2 * half
        return self.top - half

    def text(self, text: str) -> None:
        y = self.raise_to(TEXT_HEIGHT / 2)
        self.ax.text(0, y, text, ha="center", va="center", fontsize=9)

    def box(self, name: str, color: str, note: str = "", gap: float = GAP) -> None:
        y = self.raise_to(BOX_HEIGHT / 2, gap)
        self.box_at(0, y, name, color)
        self.ax.text(BOX_WIDTH / 2 + 0.15, y, note, va="center", fontsize=7.5, color=GRAY)

    def box_at(self, x: float, y: float, name: str, color: str) -> None:
        from matplotlib.patches import FancyBboxPatch

        corner = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
        style = "round,pad=0,rounding_size=0.1"
        look = {"facecolor": color, "edgecolor": INK, "linewidth": 0.8, "alpha": 0.35}
        patch = FancyBboxPatch(corner, BOX_WIDTH, BOX_HEIGHT, boxstyle=style, **look)  # type: ignore[arg-type]
        self.ax.add_patch(patch)
        self.ax.text(x, y, name, ha="center", va="center", fontsize=8.5)

    def plus(self) -> float:
        """Draw a sum and return its height."""
        from matplotlib.patches import Circle

        y = self.raise_to(PLUS_RADIUS)
        self.ax.add_patch(Circle((0, y), PLUS_RADIUS, facecolor="white", edgecolor=INK))
        for x in ([-0.1, 0.1], [0, 0]):
            self.ax.plot(x, [y, y] if x[0] else [y - 0.1, y + 0.1], color=INK, linewidth=0.9)
        return y

    def arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        look = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
        self.ax.annotate("", end, xytext=start, arrowprops=look)

    def join(self, x: float, start: tuple[float, float], end: float) -> None:
        """Draw a line from a point to the side x, up to a height, and to the sum there."""
        self.ax.plot([start[0], x, x], [start[1], start[1], end], color=INK, linewidth=0.8)
        self.arrow((x, end), (PLUS_RADIUS if x > 0 else -PLUS_RADIUS, end))


@returns_picture
def architecture(model: ModelLike, text: str = "") -> Figure:
    """Draw the parts of a model with their sizes, from the tokens to the next token.

    Args:
        model: A model or ref.
        text: Input whose tokens and next token are shown.
    """
    m = as_model(model).numpy()
    tokens, chosen = _example(m, text)
    with drawing(size=(WIDTH_INCHES, 4.0)) as (fig, (ax,)):
        stack = Stack(ax)
        _draw_input(stack, m, tokens)
        if m.config.n_layers:
            _draw_layers(stack, m)
        if m.config.norm_first and (norm := NORM_NAMES[m.config.norm]):
            stack.box(norm, GREEN, gap=BRANCH_GAP)
        sizes = f"{m.config.d_model:,} × {m.config.d_vocab:,}"
        stack.box("unembedding", PURPLE, "tied: embedding, transposed" if m.config.tied else sizes)
        stack.box("argmax", PALE)
        stack.text(chosen)
        ax.set(xlim=(-3.4, 4.6), ylim=(0.2, stack.top + 0.2), aspect="equal")
        ax.set_axis_off()
        ax.set_title(m.name if len(m.name) <= 60 else m.name[:59] + "…")
        fig.set_size_inches(WIDTH_INCHES, 0.5 + (stack.top + 0.4) * WIDTH_INCHES / 8.0)
    return fig


def _example(m: Model, text: str) -> tuple[str, str]:
    """Return the tokens of an input and the next token as texts."""
    if not text:
        return "tokens", "next token"
    *read, chosen = (m.vocabulary[t] for t in generate.run(m, text, steps=1).tokens)
    tokens = " ".join(read)
    return tokens if len(tokens) <= 40 else f"… {tokens[-38:]}", chosen


def _draw_input(stack: Stack, m: Model, tokens: str) -> None:
    c = m.config
    stack.text(tokens)
    sizes = f"{c.d_vocab:,} × {c.d_model:,}"
    added = c.positions in ADDED_POSITIONS
    stack.box(f"embedding  {sizes}" if added else "embedding", SKY, "" if added else sizes)
    if added:
        y = stack.top - BOX_HEIGHT / 2
        stack.box_at(POSITIONS_X, y, f"{c.positions} positions  {c.n_ctx:,} × {c.d_model:,}", SKY)
        stack.join(POSITIONS_X, (POSITIONS_X, stack.top), stack.plus())


def _draw_layers(stack: Stack, m: Model) -> None:
    from matplotlib.patches import Rectangle

    c = m.config
    rotated = f", {c.positions} positions" if c.positions in ("rotary", "alibi") else ""
    heads = f"{c.n_heads} head{'s' * (c.n_heads > 1)} of {c.d_head}{rotated}"
    parts = [("attention", BLUE, heads)]
    if any(len(m.weights[f"blocks.{i}.mlp.W_out"]) for i in m.mlp_layers):
        parts.append(("MLP", ORANGE, f"{c.d_mlp:,} neurons, {c.activation}"))
    norm, bottom = NORM_NAMES[c.norm], stack.top + 0.12
    for part in parts:
        branch = stack.top + 0.26
        if norm and c.norm_first:
            stack.box(norm, GREEN, gap=BRANCH_GAP)
            stack.box(*part)
        else:
            stack.box(*part, gap=BRANCH_GAP)
        stack.join(-BYPASS, (0, branch), stack.plus())
        if norm and not c.norm_first:
            stack.box(norm, GREEN)
    left, height = -BYPASS - 0.2, stack.top + 0.12 - bottom
    look = {"facecolor": "none", "edgecolor": GRAY, "linewidth": 0.8, "linestyle": "--"}
    stack.ax.add_patch(Rectangle((left, bottom), FRAME_RIGHT - left, height, **look))  # type: ignore[arg-type]
    label = f"{c.n_layers} layer{'s' * (c.n_layers > 1)}"
    middle = bottom + height / 2
    stack.ax.text(left - 0.12, middle, label, ha="right", va="center", fontsize=8.5)

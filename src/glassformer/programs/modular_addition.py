"""Addition and subtraction modulo p by hand, three ways, to stand beside a trained model.

All three are one layer with a tied head that answers at the token `=`, and without norms, as the
models of the grokking literature are (with nothing to normalise, sums stay sums).

**analog**: numbers as numbers. A number j is the pair (j, 2 − j²/2). At `=`, attention adds up the
first halves: s = a + b. Two neurons make the step relu(s − p + 1) − relu(s − p) = [s ≥ p] (s is
whole), which takes p away again: c. The second half at `=` is 1, so the tied head says c·j + 2 −
j²/2 = 2 + c²/2 − (c − j)²/2: a parabola with its top at j = c. Its neighbours are ½ lower: the
margin, everywhere. (The 2 lifts the token 0 above `=`, whose logit is 1.)

**clock** and **pizza**: numbers as angles, the way trained networks have them. A number j is a hand
on each of five dials, z_j = exp(2πi·kj/p) for five frequencies k, in the slot `wave`. At `=`,
attention adds the hands of a and b into the slot `sum`: u = z_a + z_b. The MLP writes into `wave`,
empty at `=`, a hand that points to a + b, and the tied head compares it with every z_c: dial k says
length·cos(2πk(a + b − c)/p), most at the right c.

- pizza: u = 2cos(πk(a−b)/p)·exp(πi·k(a+b)/p) points halfway, or opposite; with its angle doubled it
  points to a + b. Neurons relu(u·n_φ) for φ all around, each writing exp(2iφ), do that: relu(cos x)
  contains (2/3π)·cos 2x, and an odd number of phases lets no other harmonic through below 2·PHASES
  − 2. The hand's length, 2|cos πk(a−b)/p|, depends on a − b. If p is even and a − b = p/2, it is 0
  for odd k, and even k cannot tell c from c + p/2: pizza is for odd p.
- clock: z_a·z_b itself, which is (u² − z_a² − z_b²)/2. The squares z² stand in the embedding, slot
  `double`, and attention takes half of them away; u² = 4/3·Σ (u·n_φ)²·exp(2iφ) over three
  directions φ, where squares are chords between KNOTS. Every hand has length 1, up to the chords'
  error, whatever a − b is.

The frequencies are chosen greedily, to make the worst gap between the right c and another large.

Subtraction has to tell a from b: two heads find them by the slot `place`, and the second mirrors
what it reads (analog: −b; dials: the conjugate of z_b).
"""

from typing import Literal

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Layout, rotation
from ..registry import program
from ..tasks.modular_addition import ModularAddition, Modulus
from ..utils.errors import NamedError

MAX_CLOCK_MODULUS = 257  # maximum p of clock and pizza
MAX_FREQUENCIES = 5  # about as many as in trained networks
PHASES = 15  # number of phases of pizza's neurons; odd, see above
# (direction, threshold, strength) of a dial's neurons. Σ relu(cos(x − φ))·cos 2φ ≈ PHASES/3π·cos 2x
PIZZA = [(2 * np.pi * m / PHASES, 0.0, 3 * np.pi / PHASES) for m in range(PHASES)]
KNOTS = (0.0, 0.5, 1.0, 1.5)  # knots of clock's squares; |u·n| is at most 2
Parts = tuple[Config, dict[str, Floats], Labels]  # parts of a Model


@program("modular-addition", float32=True)
def modular_addition(
    p: Modulus = 113, operation: Literal["+", "-"] = "+", plus: bool = False,
    variant: Literal["analog", "clock", "pizza"] = "analog",
) -> Model:  # fmt: skip
    """a + b (or a − b) modulo p, by numbers or by angles as in trained networks."""
    task = ModularAddition(p=p, operation=operation, plus=plus)
    if variant == "pizza" and p % 2 == 0:
        must = f"p must be odd, got {p}; variant=clock takes any p"
        raise NamedError("modular-addition", f"modular-addition:variant=pizza — {must}")
    if (
        variant != "analog" and p > MAX_CLOCK_MODULUS
    ):  # Every pair of numbers is compared on every dial.
        must = f"p must be at most {MAX_CLOCK_MODULUS}, got {p:,}; variant=analog takes more"
        raise NamedError("modular-addition", f"modular-addition:variant={variant} — {must}")
    if variant == "analog":
        config, weights, labels = _analog(p, operation == "-", plus)
    else:
        config, weights, labels = _dials(p, operation == "-", plus, variant == "pizza")
    return Model(config, weights, task.vocabulary, task.ref, labels)


def _analog(p: int, minus: bool, plus: bool) -> Parts:
    layout = Layout(number=1, height=1, place=int(minus))
    config = _config(p, minus, plus, layout, d_head=1, d_mlp=2)
    w = zeros(config, "mlp.b_in")
    j = np.arange(p)[:, None]
    w["embed.W_E"][:p] = layout.row(number=j, height=2 - j**2 / 2)
    w["embed.W_E"][p] = layout.row(height=1)  # `=`
    number = layout["number"]
    heads = _gather(config, w, layout, number, layout.row(number=[[1]]), mirror=-np.eye(1))
    # [s ≥ p] takes p away; for a − b, [−s ≥ 1] gives p back.
    side, edge = (-1, 1) if minus else (1, p)
    w["blocks.0.mlp.W_in"][number] = side
    w["blocks.0.mlp.b_in"][:] = 1 - edge, -edge
    w["blocks.0.mlp.W_out"][:, number] = [[-side * p], [side * p]]
    what = "b − a" if minus else "a + b"
    neurons = {"0.0": f"{what} beyond {edge - 1}", "0.1": f"{what} beyond {edge}"}
    return config, w, Labels(layout.slots, heads, neurons)


def _dials(p: int, minus: bool, plus: bool, pizza: bool) -> Parts:
    dials = frequencies(p, pizza)
    n = 2 * len(dials)
    layout = Layout(wave=n, double=0 if pizza else n, sum=n, place=int(minus))
    neurons = PIZZA if pizza else _clock()
    d_mlp = len(neurons) * len(dials)
    config = _config(p, minus, plus, layout, d_head=n if pizza else 2 * n, d_mlp=d_mlp)
    w = zeros(config) if pizza else zeros(config, "mlp.b_in")
    hands = rotation(p, 2 * np.pi * np.array(dials) / p)  # p n
    twice = rotation(p, 4 * np.pi * np.array(dials) / p)  # p n
    w["embed.W_E"][:p] = layout.row(wave=hands) if pizza else layout.row(wave=hands, double=twice)
    read = layout["wave"] if pizza else layout.span("wave", "double")
    write = layout.row(sum=np.eye(n))
    if not pizza:  # Add −½ z² directly to the result.
        write = np.concatenate([write, layout.row(wave=-np.eye(n) / 2)])
    mirror = np.diag(np.tile([1.0, -1.0], len(write) // 2))
    heads = _gather(config, w, layout, read, write, mirror)
    W_in, W_out, names = w["blocks.0.mlp.W_in"], w["blocks.0.mlp.W_out"], {}
    for dial, k in enumerate(dials):
        hand = slice(2 * dial, 2 * dial + 2)
        for i, (phase, threshold, strength) in enumerate(neurons):
            at = dial * len(neurons) + i
            W_in[layout["sum"], at][hand] = _unit(phase)
            W_out[at, layout["wave"]][hand] = strength * _unit(2 * phase)
            if not pizza:
                w["blocks.0.mlp.b_in"][at] = -threshold
            beyond = f"sum beyond {threshold:g} towards {np.degrees(phase):.0f}°"
            names[f"0.{at}"] = f"dial {k}: {beyond}"
    return config, w, Labels(layout.slots, heads, names)


def _unit(angle: float) -> Floats:
    return np.array([np.cos(angle), np.sin(angle)])


def _clock() -> list[tuple[float, float, float]]:
    """Return (direction, threshold, strength) of the neurons of a dial of clock, for u²/2.

    A chord of x² has slope step·(2i + 1), so the slope changes by step, then by 2·step.
    """
    step = KNOTS[1]
    strengths = [(knot, (step if knot == 0 else 2 * step) * 2 / 3) for knot in KNOTS]
    return [(np.pi * m / 3, knot, s) for m in range(6) for knot, s in strengths]


def frequencies(p: int, pizza: bool) -> list[int]:
    """Return at most MAX_FREQUENCIES frequencies up to p/2.

    They are 1 and then, greedily, the frequencies with the largest gap.
    """
    k = np.arange(1, p // 2 + 1)
    gaps = 1 - np.cos(2 * np.pi * np.outer(k, np.arange(1, p)) / p)  # shape [k, wrong c − right c]
    lengths = np.abs(
        np.cos(np.pi * np.outer(k, np.arange(p if pizza else 1)) / p)
    )  # shape [k, a − b]

    def worst(dials: list[int]) -> float:
        return float((lengths[dials].T @ gaps[dials]).min())

    dials = [0]
    while len(dials) < min(MAX_FREQUENCIES, len(k)):
        rest = [i for i in range(len(k)) if i not in dials]
        dials.append(max(rest, key=lambda i: worst([*dials, i])))
    return [int(k[i]) for i in dials]


def _config(p: int, minus: bool, plus: bool, layout: Layout, d_head: int, d_mlp: int) -> Config:
    """Return the config: one head and no positions if only a + b matters.

    Otherwise (a − b) there are two heads and learned positions.
    """
    return Config(
        p + 1 + plus, 3 + plus, layout.size, n_heads=1 + minus, d_head=d_head, d_mlp=d_mlp,
        norm="none", activation="relu", positions="learned" if minus else "none", tied=True,
    )  # fmt: skip


def _gather(
    config: Config, w: dict[str, Floats], layout: Layout, read: slice, write: Floats, mirror: Floats
) -> dict[str, str]:
    """Set attention so that `=` adds `read` at a and b (0 elsewhere) times `write` [K, D].

    With two heads, the value at b is multiplied by `mirror` [K, K] first. Return the heads' names.
    """
    W_Q, W_K, W_V, W_O = (w[f"blocks.0.attn.{name}"] for name in ("W_Q", "W_K", "W_V", "W_O"))
    W_V[:, read], W_O[:] = np.eye(config.d_head), write
    if config.n_heads == 1:  # All scores are 0, so n_ctx times the mean is the sum.
        W_V *= config.n_ctx
        return {"0.0": "adds up a and b"}
    place = layout["place"].start
    # `=` attends to the largest and the smallest key of a, b and `=`.
    w["pos_embed.W_pos"][[0, -2, -1], place] = 1, -1, 0.5
    W_Q[:, place, 0], W_K[:, place, 0] = (1e4, -1e4), 1
    W_O[1] = mirror @ write
    return {"0.0": "reads a", "0.1": "reads b and mirrors it"}

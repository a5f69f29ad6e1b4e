"""Tuning: gains, hardness and codes, set by what the certificate finds and not by trial.

A tally's steps are made as steep as its certificate needs, a look as hard as its leak asks, a flat
head at the best place between what leaks and by how much equals differ. Where that is not enough,
values are told apart more finely and tables get neurons in pairs, which mend errors.
"""

import math
from dataclasses import replace

from ...core.model import Model
from ...utils.errors import GlassformerError
from ..certify import Certificate, TooMany, Unproved, certify
from ..ir import Look, Program, Tally
from .allocate import Plan, plan
from .cost_estimate import afford
from .emit import Emitter
from .encode import is_equality
from .stream import Settings

TRIES = 20
WORK = 600_000_000  # of all tries, in the certificate's cases: half a minute
LEAK = {"float64": 1e-12, "float32": 1e-8}  # of looks, where what they bring must be off by less
SPARE = 1.02  # steps go this much farther than they must
GAIN = 1.1  # to begin with


def tune(program: Program, dtype: str, target: str = "") -> tuple[Model, Certificate, Plan]:
    """The smallest model of a program that is found to hold in a float type."""
    settings, fine = Settings(), frozenset[str]()
    best: tuple[Model, Certificate, Plan] | None = None
    why, work = "no try", 0
    for tries in range(TRIES):
        made = plan(program, fine)
        work += 2 * afford(made)
        if tries and work > WORK:
            why += f"; and all that was tried took {work:,} cases, the most is {WORK:,}"
            break
        model = Emitter(made, settings, target).model().astype(dtype)
        failed = None
        try:
            found = certify(model, program, made.declaration)
            if best is None or found.margin > best[1].margin:
                best = (model, found, made)
        except TooMany as e:
            if best is not None:
                break
            raise GlassformerError(f"{program.name} — not proved in {dtype}: {e}") from None
        except Unproved as e:
            found, failed, why = e.found, e, str(e)
        work += found.work
        new = replace(
            settings,
            gain=gains(settings, found),
            hard=settings.hard | harder(made, settings, found),
        )
        settled = new.hard == settings.hard and all(
            abs(g / settings.gain.get(n, GAIN) - 1) < 0.02 for n, g in new.gain.items()
        )
        if settled and best is not None:
            break
        if settled and failed is not None:
            more = finer(program, fine, failed)
            if more == fine and new.pairs and new.aligned:
                break
            if more == fine:
                new = replace(new, pairs=True, aligned=True, leak=LEAK[dtype])
            fine = more
        settings = new
    if best is None:
        raise GlassformerError(f"{program.name} — not proved in {dtype}: {why}")
    return best


def gains(settings: Settings, found: Certificate) -> dict[str, float]:
    """Steps just as steep as they must be."""
    out = dict(settings.gain)
    for name, reach in found.reach.items():
        if reach > 1e-9:
            out[name] = out.get(name, GAIN) * SPARE / reach
    return out


def finer(program: Program, fine: frozenset[str], failed: Unproved) -> frozenset[str]:
    """The values that a failed head compares, to be told apart more finely."""
    if not isinstance(failed.value, (Look, Tally)):
        return fine
    compared = [t for t in failed.value.tests if is_equality(t)]
    return fine | {side.name for t in compared for side in t.args}


def harder(made: Plan, settings: Settings, found: Certificate) -> dict[str, float]:
    """Factors for heads: a look that leads by too little, a tally that is not at its best between
    what leaks and by how much equals differ.
    """
    out, n = {}, made.program.length + 1
    for v in made.program.values:
        gap, now = found.gap.get(v.name), settings.hard.get(v.name, 1.0)
        if gap is None or not gap > 1:
            continue
        if isinstance(v, Look) and gap < 0.9 * (wanted := math.log(n / settings.leak)):
            out[v.name] = now * min(2.0, wanted / gap)
        if isinstance(v, Tally) and v.tests:
            spread = found.spread[v.name]
            factors = [0.5 + 0.05 * i for i in range(40)]
            wrong = [f * spread + 2 * n * math.exp(-gap * f) for f in factors]
            best = factors[wrong.index(min(wrong))]
            if abs(best - 1) > 0.08:
                out[v.name] = now * best
    return out

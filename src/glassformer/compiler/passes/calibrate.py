"""Tuning: gains, hardness and codes, set by what the certificate finds and not by trial.

A tally's steps are made as steep as its certificate needs, a look as hard as its leak asks, a flat
head at the best place between what leaks and by how much equals differ. Where that is not enough,
values are told apart more finely and tables get neurons in pairs, which mend errors.
"""

import math
from dataclasses import replace

from ...core.model import Model
from ...utils.errors import GlassformerError
from ..certify import Certificate, TooManyCases, Unproved, certify
from ..ir import Program, Select, ThresholdCount
from .allocate import Plan, make_plan
from .cost_estimate import estimate_size
from .emit import Emitter
from .encode import is_equality
from .stream import EmitSettings

MAX_TRIES = 20
MAX_CERTIFICATE_CASES = 600_000_000  # of all tries, in the certificate's cases: half a minute
SELECT_LEAK = {
    "float64": 1e-12,
    "float32": 1e-8,
}  # of looks, where what they bring must be off by less
GAIN_HEADROOM = 1.02  # steps go this much farther than they must
INITIAL_GAIN = 1.1  # to begin with


def calibrate(program: Program, dtype: str, target: str = "") -> tuple[Model, Certificate, Plan]:
    """The smallest model of a program that is found to hold in a float type."""
    settings, fine = EmitSettings(), frozenset[str]()
    best: tuple[Model, Certificate, Plan] | None = None
    reason, work = "", 0
    for tries in range(MAX_TRIES):
        made = make_plan(program, fine)
        work += 2 * estimate_size(made)
        if tries and work > MAX_CERTIFICATE_CASES:
            reason += f"; stopped after {work:,} of {MAX_CERTIFICATE_CASES:,} cases"
            break
        model = Emitter(made, settings, target).build_model().astype(dtype)
        failed = None
        try:
            found = certify(model, program, made.declaration)
            if best is None or found.margin > best[1].margin:
                best = (model, found, made)
        except TooManyCases as e:
            if best is not None:
                break
            raise _unproved(program, dtype, str(e)) from None
        except Unproved as e:
            found, failed, reason = e.certificate, e, str(e)
        work += found.work
        new = replace(
            settings,
            gain=update_gains(settings, found),
            hardness=settings.hardness | update_hardness(made, settings, found),
        )
        settled = new.hardness == settings.hardness and all(
            abs(g / settings.gain.get(n, INITIAL_GAIN) - 1) < 0.02 for n, g in new.gain.items()
        )
        if settled and best is not None:
            break
        if settled and failed is not None:
            more = refine_codes(program, fine, failed)
            if more == fine and new.paired_neurons and new.factor_by_key:
                break
            if more == fine:
                new = replace(new, paired_neurons=True, factor_by_key=True, leak=SELECT_LEAK[dtype])
            fine = more
        settings = new
    if best is None:
        raise _unproved(program, dtype, reason)
    return best


def _unproved(program: Program, dtype: str, reason: str) -> GlassformerError:
    return GlassformerError(f"{program.name}: not proved in {dtype}: {reason}", code="unsupported")


def update_gains(settings: EmitSettings, certificate: Certificate) -> dict[str, float]:
    """Steps just as steep as they must be."""
    out = dict(settings.gain)
    for name, reach in certificate.step_reach.items():
        if reach > 1e-9:
            out[name] = out.get(name, INITIAL_GAIN) * GAIN_HEADROOM / reach
    return out


def refine_codes(program: Program, finely_coded: frozenset[str], error: Unproved) -> frozenset[str]:
    """The values that a failed head compares, to be told apart more finely."""
    if not isinstance(error.value, (Select, ThresholdCount)):
        return finely_coded
    compared = [t for t in error.value.predicates if is_equality(t)]
    return finely_coded | {side.name for t in compared for side in t.args}


def update_hardness(
    plan: Plan, settings: EmitSettings, certificate: Certificate
) -> dict[str, float]:
    """Factors for heads: a look that leads by too little, a tally that is not at its best between
    what leaks and by how much equals differ.
    """
    out, n = {}, plan.program.length + 1
    for v in plan.program.values:
        gap, now = certificate.score_gap.get(v.name), settings.hardness.get(v.name, 1.0)
        if gap is None or not gap > 1:
            continue
        if isinstance(v, Select) and gap < 0.9 * (wanted := math.log(n / settings.leak)):
            out[v.name] = now * min(2.0, wanted / gap)
        if isinstance(v, ThresholdCount) and v.predicates:
            spread = certificate.score_spread[v.name]
            factors = [0.5 + 0.05 * i for i in range(40)]
            wrong = [f * spread + 2 * n * math.exp(-gap * f) for f in factors]
            best = factors[wrong.index(min(wrong))]
            if abs(best - 1) > 0.08:
                out[v.name] = now * best
    return out

"""Calibrate gains, hardness and codes from the certificate.

The steps of counts become as steep as the certificate requires, and selects as hard as their
permitted leak requires. Uniform heads get the hardness that minimizes leak plus spread. If the
proof still fails, values get codes with larger gaps, and tables get pairs of neurons, which
correct errors.
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
MAX_CERTIFICATE_CASES = 600_000_000  # total over all tries, about half a minute
SELECT_LEAK = {"float64": 1e-12, "float32": 1e-8}  # used after the default leak was not proved
GAIN_HEADROOM = 1.02  # factor by which steps exceed the required reach
INITIAL_GAIN = 1.1


def calibrate(program: Program, dtype: str, target: str = "") -> tuple[Model, Certificate, Plan]:
    """Return the model of a program with the largest proved margin, its certificate and its plan.

    Raises:
        GlassformerError: no try is proved.
    """
    settings, finely_coded = EmitSettings(), frozenset[str]()
    best: tuple[Model, Certificate, Plan] | None = None
    reason, work = "", 0
    for tries in range(MAX_TRIES):
        plan = make_plan(program, finely_coded)
        work += 2 * estimate_size(plan)
        if tries and work > MAX_CERTIFICATE_CASES:
            reason += f"; stopped after {work:,} of {MAX_CERTIFICATE_CASES:,} cases"
            break
        model = Emitter(plan, settings, target).build_model().astype(dtype)
        failure = None
        try:
            certificate = certify(model, program, plan.declaration)
            if best is None or certificate.margin > best[1].margin:
                best = (model, certificate, plan)
        except TooManyCases as e:
            reason = str(e)
            break
        except Unproved as e:
            certificate, failure, reason = e.certificate, e, str(e)
        work += certificate.work
        new = replace(
            settings,
            gain=update_gains(settings, certificate),
            hardness=settings.hardness | update_hardness(plan, settings, certificate),
        )
        settled = new.hardness == settings.hardness and all(
            abs(g / settings.gain.get(n, INITIAL_GAIN) - 1) < 0.02 for n, g in new.gain.items()
        )
        if settled and best is not None:
            break
        if settled and failure is not None:
            refined = refine_codes(finely_coded, failure)
            if refined == finely_coded:
                if new.paired_neurons and new.factor_by_key:
                    break
                new = replace(new, paired_neurons=True, factor_by_key=True, leak=SELECT_LEAK[dtype])
            finely_coded = refined
        settings = new
    if best is None:
        message = f"{program.name}: not proved in {dtype}: {reason}"
        raise GlassformerError(message, code="unsupported")
    return best


def update_gains(settings: EmitSettings, certificate: Certificate) -> dict[str, float]:
    """Return the gains at which every step just reaches the certificate's requirement."""
    out = dict(settings.gain)
    for name, reach in certificate.step_reach.items():
        if reach > 1e-9:
            out[name] = out.get(name, INITIAL_GAIN) * GAIN_HEADROOM / reach
    return out


def refine_codes(finely_coded: frozenset[str], failure: Unproved) -> frozenset[str]:
    """Add the values compared by the failed head to the finely coded values."""
    if not isinstance(failure.value, (Select, ThresholdCount)):
        return finely_coded
    tests = [t for t in failure.value.predicates if is_equality(t)]
    return finely_coded | {side.name for t in tests for side in t.args}


def update_hardness(
    plan: Plan, settings: EmitSettings, certificate: Certificate
) -> dict[str, float]:
    """Return new hardness factors for selects that leak too much and counts far from their optimum.

    A larger hardness of a uniform head reduces its leak, but increases the spread of tied weights.
    """
    out, n = {}, plan.program.length + 1
    for v in plan.program.values:
        gap, hardness = certificate.score_gap.get(v.name), settings.hardness.get(v.name, 1.0)
        if gap is None or not gap > 1:
            continue
        if isinstance(v, Select) and gap < 0.9 * (wanted := math.log(n / settings.leak)):
            out[v.name] = hardness * min(2.0, wanted / gap)
        if isinstance(v, ThresholdCount) and v.predicates:
            spread = certificate.score_spread[v.name]
            factors = [0.5 + 0.05 * i for i in range(40)]
            errors = [f * spread + 2 * n * math.exp(-gap * f) for f in factors]
            best = factors[errors.index(min(errors))]
            if abs(best - 1) > 0.08:
                out[v.name] = hardness * best
    return out

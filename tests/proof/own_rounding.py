"""Margins of the first prover, in another precision of its own: run by test_own_rounding.py.

python own_rounding.py float64|longdouble SLACK_FACTOR OUT.npz
"""

import sys

import numpy as np

precision, factor, out = sys.argv[1:]
if precision == "float64":
    np.longdouble = np.float64  # before the prover takes it

import glassformer as gf  # noqa: E402
from glassformer.proof import affine_arithmetic, bounds, copy_tasks, prover  # noqa: E402
from glassformer.proof.layout import layout_of  # noqa: E402

ADDERS = ["adder-hinge:digits=2", "adder-hinge:digits=2,norm=rms", "addition:digits=2"]


def adder_leads(model, task):
    bounder = bounds.Bounder(model, layout_of(task))
    for view in prover.initial_row_groups(bounder):
        for result in bounder.bounds(view, next(prover.candidate_splits(bounder, view))):
            yield from result.margin.astype(np.float64)


def main():
    for module in [m for n, m in sys.modules.items() if n.startswith("glassformer.proof.")]:
        if hasattr(module, "SLACK"):
            module.SLACK = module.SLACK * affine_arithmetic.Real(float(factor))
    copy_tasks.float_below = float  # which would hide the last place
    full = bounds.Bounder._directions

    def directions(self):  # the same in both precisions
        return full(self).astype(np.float32).astype(affine_arithmetic.Real)

    bounds.Bounder._directions = directions
    leads = {}
    with np.errstate(all="ignore"):
        for ref in ADDERS:
            model = gf.load(ref).astype("float32")
            leads[ref] = [*adder_leads(model, gf.load_task(model))]
        model = gf.load("reverse:length=4").astype("float32")
        leads["reverse"] = [
            case.margin for case in copy_tasks.copy_cases(model, gf.load_task(model))
        ]
    np.savez(out, **{ref: np.array(x) for ref, x in leads.items()})


main()

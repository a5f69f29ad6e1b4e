"""Claims on addition modulo 113.

The claims of the mod-113 report are on the twelve heads of its model. Models of that shape, trained
with the recipe `mod113-3x4`, divide the work between the heads differently from seed to seed, and
one seed from machine to machine. So the claims are counted over the runs in runs/report.jsonl
(over_seeds.py), each measured over all 12,769 pairs.

Nanda et al., *Progress measures for grokking via mechanistic interpretability* (2023), trained one
layer on 30 % of all pairs for 40,000 epochs. The model grok-113, in the package, has the same shape
and fraction of pairs but another seed, and its training stopped when it was stable, after 11,900
epochs. Therefore kinds and ratios can be compared, but not every number. Zhong et al., *The Clock
and the Pizza* (2023), define the two measures that distinguish such models.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..lens.heads import THRESHOLDS
from ..lens.modular.analysis import (
    FourierLosses,
    ModularAnalysis,
    analyze_modular,
    distance_irrelevance,
    gradient_symmetricity,
)
from ..resolve import load, load_task
from . import Claim
from .over_seeds import Condition, Run, over_runs, read_runs

# ── heads ────────────────────────────────────────────────────────────────────────────────────────
WHERE = "section 4"


UNIFORM = 1 / 4  # of the four tokens a + b =
OPERANDS, PLUS, EQUALS = (0, 2), (1,), (3,)
BY_LAYER = "by layer, least … largest: "


def of_reports(condition: Condition) -> dict[str, Any]:
    """Return the measure of a claim over the runs of the recipe `mod113-3x4`."""
    return over_runs("report", condition)


def share(run: Run, places: tuple[int, ...]) -> list[float]:
    """Return the attention from = on some places by layer, mean over four heads and all pairs."""
    return [float(x) for x in np.array(run["attention"])[..., places].sum(-1).mean(1)]


def bits(run: Run) -> list[float]:
    """Return the entropy of the attention from = by layer, mean over four heads and all pairs."""
    return [float(x) for x in np.reshape(run["bits"], (3, 4)).mean(1)]


def ranges(measure: Callable[[Run], list[float]], form: str) -> str:
    """Return the least and the largest value of a measure by layer, for a note."""
    values = np.array([measure(run) for run in read_runs("report")])
    ends = zip(values.min(0), values.max(0), strict=True)
    return BY_LAYER + ", ".join(f"{low:{form}} … {high:{form}}" for low, high in ends)


def has_kinds(run: Run, *kinds: str) -> bool:
    return set(kinds) <= set(run["kinds"])


def changing_heads(run: Run) -> float:
    """Return how many of the twelve heads change their class on one of the report's inputs."""
    each = zip(run["kinds"], *run["kinds_of_examples"], strict=True)
    return sum(len(set(kinds)) > 1 for kinds in each)


# ── waves ────────────────────────────────────────────────────────────────────────────────────────
@cache
def analyze_grok() -> ModularAnalysis:
    """Return the analysis of grok-113, with losses on its training pairs."""
    from ..training.data import TrainingData
    from ..training.recipes import find_recipe

    task = load_task("modular-addition")
    rows = TrainingData(task, find_recipe("grok")).train_rows
    return analyze_modular(load("grok-113.safetensors"), task, train_rows=rows)


def losses() -> FourierLosses:
    return analyze_grok().losses["all"]


def order_of_losses() -> str:
    values = {getattr(losses(), name): name for name in ("full", "restricted", "excluded")}
    return " < ".join(name for _, name in sorted([*values.items(), (math.log(113), "chance")]))


def distance_irrelevances() -> str:
    """Return the published measure for the logits and for the logits minus their mean."""
    task = load_task("modular-addition")
    tokens, answer = task.batch(task.rows(0, task.size))
    logits = load("grok-113.safetensors")(tokens[:, :-1], last=1)[:, 0]
    right = np.take_along_axis(logits, tokens[answer][:, None], 1).reshape(113, 113).astype(float)
    return f"{distance_irrelevance(right):.2f} raw, {analyze_grok().irrelevance:.2f} centred"


CLAIMS = [
    Claim("report-1-accuracy", "section 1",
          "3 layers, addition mod 113: 100 % on held-out pairs after 50 epochs", "varies",
          "4 of 6 runs [22 %, 96 %]",
          **of_reports(lambda r: r["accuracy"] == 1.0),
          note="all of the 2,554 pairs that were not trained on are right at epoch 50"),
    Claim("report-4-operands", WHERE, "most attention from = is on the two numbers", "varies",
          "5 of 6 runs [36 %, 100 %]",
          **of_reports(lambda r: np.mean(share(r, OPERANDS)) > 0.5),
          note="more than half, mean over all heads and pairs; an even look has half. The share "
          + ranges(lambda r: share(r, OPERANDS), ".0%")),
    Claim("report-4-later", WHERE, "the numbers get more of it in layers 1 and 2 than in layer 0",
          "varies", "2 of 6 runs [4 %, 78 %]",
          **of_reports(lambda r: min(share(r, OPERANDS)[1:]) > share(r, OPERANDS)[0]),
          note="both later layers have a larger share"),
    Claim("report-4-plus", WHERE, "very little attention on +", "wrong",
          "0 of 6 runs [0 %, 46 %]",
          **of_reports(lambda r: max(share(r, PLUS)) < UNIFORM / 2),
          note="less than half of an even share, an eighth, in each layer. The share "
          + ranges(lambda r: share(r, PLUS), ".0%")),
    Claim("report-4-plus-later", WHERE, "layers 1 and 2 attend to + more than layer 0", "varies",
          "3 of 6 runs [12 %, 88 %]",
          **of_reports(lambda r: min(share(r, PLUS)[1:]) > share(r, PLUS)[0]),
          note="both later layers have a larger share"),
    Claim("report-4-broad", WHERE, "layer 0 looks broadly, layers 1 and 2 sharply", "varies",
          "1 of 6 runs [0 %, 64 %]",
          **of_reports(lambda r: bits(r)[0] > max(bits(r)[1:])),
          note="layer 0 has the largest entropy; an even look has 2 bits. Bits "
          + ranges(bits, ".2f")),
    Claim("report-4-self", WHERE, "self-heads mainly attend to =", "varies",
          "2 of 6 runs [4 %, 78 %]",
          **of_reports(lambda r: np.max(np.array(r["attention"])[..., EQUALS])
                       >= THRESHOLDS["self"]),
          note=f"a head has {THRESHOLDS['self']:.0%} of its attention on =, the threshold of a "
          "self-head"),
    Claim("report-4-kinds", WHERE, "heads for a, and heads for b", "varies",
          "1 of 6 runs [0 %, 64 %]",
          **of_reports(lambda r: has_kinds(r, "first operand", "second operand")),
          note="by written thresholds, 60 % of its attention over all pairs, there is a head for "
          "each"),
    Claim("report-4-kinds-single", WHERE, "each head has found its own niche", "wrong",
          "0 of 6 runs [0 %, 46 %]",
          **of_reports(lambda r: changing_heads(r) == 0),
          note="no head changes its class on 5+8, 90+90 or 50+0, the report's inputs"),
    Claim("report-4-mlp", WHERE, "the MLPs have learned to perform the computation", "holds",
          "6 of 6 runs [54 %, 100 %]",
          **of_reports(lambda r: r["without"]["mlp 0+mlp 1+mlp 2"] < 0.5),
          note="fewer than half of the pairs are right with every MLP at its mean"),
    Claim("nanda-4.1-key-frequencies", "Nanda et al., section 4.1 and appendix C.2.1",
          "five key frequencies (14, 35, 41, 42, 52); three or four in other seeds", "holds",
          "1, 5, 33, 50", lambda: ", ".join(map(str, analyze_grok().key)),
          "our seed's, by our rule: waves to the logits at least a fifth as large as the largest",
          runs=1),
    Claim("nanda-4.1-embedding", "Nanda et al., section 4.1",
          "six frequencies of the embedding are not negligible, five of them are used", "holds", 6,
          lambda: analyze_grok().embedding.frequencies_for(0.9),
          "these hold 90 % of our embedding's power: four are used, the others are 10 = 2·5 and "
          "2 = 2·1", runs=1),
    Claim("nanda-4.1-share", "Nanda et al., section 4.1",
          "the embedding is sparse: next to nothing outside a few frequencies", "holds",
          (0.83, 0.842), lambda: analyze_grok().key_share,
          "the key frequencies' share of its power; four of 56 would have 0.07 by chance", runs=1),
    Claim("nanda-4.2-cosines", "Nanda et al., section 4.2",
          "95 % of the logits' variance is a sum of cos w(a + b − c)", "roughly", (0.91, 0.92),
          lambda: analyze_grok().explained, "another seed, and fewer epochs", runs=1),
    Claim("nanda-4.2-cosines-loss", "Nanda et al., section 4.2",
          "with nothing but these cosines the loss falls, to 0.2 of what it was (2.4e-7 to "
          "4.7e-8)", "roughly", (0.28, 0.35), lambda: losses().cosines / losses().full,
          "it falls: the loss with the cosines alone, as a share of the full loss, which is "
          "0.00106", runs=1),
    Claim("nanda-4.3-neurons", "Nanda et al., section 4.3",
          "84.6 % of the neurons are explained to 85 % or more by one frequency", "holds",
          (0.85, 0.87), lambda: analyze_grok().neurons[0].single_frequency_share, runs=1),
    Claim("nanda-4.4-restricted", "Nanda et al., section 4.4",
          "keeping only the waves of a + b lowers the loss by 77 %, to 0.23 of what it was",
          "roughly", (0.40, 0.46), lambda: losses().restricted / losses().full,
          "it is lower: restricted loss as a share of the full loss, over all pairs", runs=1),
    Claim("nanda-c.2-excluded", "Nanda et al., appendix C.2.1",
          "without the key frequencies: a loss of 6.5 to 11, worse than chance, in other seeds",
          "holds", (10.0, 10.8), lambda: analyze_grok().losses["train"].excluded,
          "excluded loss on the training pairs; chance is ln 113 = 4.7", runs=1),
    Claim("nanda-5-losses", "Nanda et al., sections 4.4 and 5.1",
          "restricted loss 5.5e-8, full loss 2.4e-7, excluded loss worse than chance", "holds",
          "restricted < full < chance < excluded", order_of_losses,
          "ours are 0.00046, 0.00106 and 10.8 after 11,900 epochs; theirs are after 40,000",
          runs=1),
    Claim("zhong-4.2-clock", "Zhong et al., section 4",
          "with attention that is trained, distance irrelevance 0.85: a clock (a pizza has 0.17)",
          "misleading", "0.44 raw, 0.81 centred", distance_irrelevances,
          "as published, of raw logits, ours is neither (a clock from 0.6, a pizza up to 0.4); "
          "less the mean over all answers, which changes no answer, it is a clock", runs=1),
    Claim("zhong-4.1-symmetricity", "Zhong et al., section 4",
          "gradient symmetricity tells a clock (33 %) from a pizza (99 %)", "misleading",
          (0.999, 1.001),
          lambda: gradient_symmetricity(load("modular-addition:variant=clock"),
                                        load_task("modular-addition")),
          "that of our hand-made clock, whose attention adds up a and b; grok-113 has 46 %. It "
          "tells whether attention chooses, not which algorithm follows"),
]  # fmt: skip

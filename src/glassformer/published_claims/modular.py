"""Claims on addition modulo 113.

The claims of the mod-113 report are on the twelve heads of its model. They are measured on a model
of that shape, trained here with the recipe `mod113-3x4` and right on all pairs; another run may
divide the work between the heads differently. It is too large for the package:
runs/mod113-3x4-heads.json has the measurements of its heads over all 12,769 pairs, with the command
that made the file.

Nanda et al., *Progress measures for grokking via mechanistic interpretability* (2023), trained one
layer on 30 % of all pairs for 40,000 epochs. The model grok-113, in the package, has the same shape
and fraction of pairs but another seed, and its training stopped when it was stable, after 11,900
epochs. Therefore kinds and ratios can be compared, but not every number. Zhong et al., *The Clock
and the Pizza* (2023), define the two measures that distinguish such models.
"""

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..lens.modular.analysis import (
    FourierLosses,
    ModularAnalysis,
    analyze_modular,
    distance_irrelevance,
    gradient_symmetricity,
)
from ..resolve import load, load_task
from . import Claim
from .measures import join_percents, read_run_file

# ── heads ────────────────────────────────────────────────────────────────────────────────────────
WHERE = "section 4"


@cache
def head_records() -> list[dict[str, Any]]:
    return list(json.loads(read_run_file("mod113-3x4-heads.json"))["heads"])


def by_layer(measure: Callable[[dict[str, Any]], float]) -> list[float]:
    """Return the mean of a measure over the four heads of each layer."""
    return [sum(measure(h) for h in head_records()[4 * i : 4 * i + 4]) / 4 for i in range(3)]


def attention_share(*places: str) -> list[float]:
    return by_layer(lambda h: sum(h["looks_at"].get(p, 0.0) for p in places))


def first_layer_leads() -> bool:
    shares = attention_share("a", "b")
    return shares[0] > max(shares[1:])


def heads_by_kind() -> str:
    kinds: dict[str, list[str]] = {}
    for h in head_records():
        kinds.setdefault(h["kind"], []).append(h["head"])
    return "; ".join(f"{kind}: {' '.join(names)}" for kind, names in kinds.items())


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
    Claim("report-4-operands", WHERE, "most attention from = is on the two numbers", "holds",
          "87%, 64%, 64%", lambda: join_percents(attention_share("a", "b")),
          "by layer, mean over four heads and all pairs"),
    Claim("report-4-later", WHERE, "the numbers get more of it in layers 1 and 2 than in layer 0",
          "wrong", True, first_layer_leads, "whether layer 0 has the largest share in our model"),
    Claim("report-4-plus", WHERE, "very little attention on +", "misleading", "5%, 19%, 19%",
          lambda: join_percents(attention_share("+")),
          "by layer; that layers 1 and 2 look there more, as the report also says, holds"),
    Claim("report-4-broad", WHERE, "layer 0 looks broadly, layers 1 and 2 sharply", "wrong",
          "1.25, 1.46, 1.43", lambda: ", ".join(f"{x:.2f}" for x in by_layer(lambda h: h["bits"])),
          "bits of entropy by layer in our model; an even look has 2"),
    Claim("report-4-self", WHERE, "self-heads mainly attend to =", "wrong", (0.3, 0.4),
          lambda: max(float(h["self"]) for h in head_records()),
          "the largest share on = of any head in our model; a self-head has 0.6"),
    Claim("report-4-kinds", WHERE, "heads for a, for b, for all inputs, and self-heads", "roughly",
          "first operand: 0.0; same-column: 0.1 0.3 2.0; second operand: 0.2; mixed: 1.0 1.1 1.2 "
          "1.3 2.1 2.2 2.3", heads_by_kind,
          "by written thresholds. On single inputs 7 of 12 change; the report has 0.3 in two "
          "classes"),
    Claim("nanda-4.1-key-frequencies", "Nanda et al., section 4.1 and appendix C.2.1",
          "five key frequencies (14, 35, 41, 42, 52); three or four in other seeds", "holds",
          "1, 5, 33, 50", lambda: ", ".join(map(str, analyze_grok().key)),
          "our seed's, by our rule: waves to the logits at least a fifth as large as the largest"),
    Claim("nanda-4.1-embedding", "Nanda et al., section 4.1",
          "six frequencies of the embedding are not negligible, five of them are used", "holds", 6,
          lambda: analyze_grok().embedding.frequencies_for(0.9),
          "these hold 90 % of our embedding's power: four are used, the others are 10 = 2·5 and "
          "2 = 2·1"),
    Claim("nanda-4.1-share", "Nanda et al., section 4.1",
          "the embedding is sparse: next to nothing outside a few frequencies", "holds",
          (0.83, 0.842), lambda: analyze_grok().key_share,
          "the key frequencies' share of its power; four of 56 would have 0.07 by chance"),
    Claim("nanda-4.2-cosines", "Nanda et al., section 4.2",
          "95 % of the logits' variance is a sum of cos w(a + b − c)", "roughly", (0.91, 0.92),
          lambda: analyze_grok().explained, "another seed, and fewer epochs"),
    Claim("nanda-4.2-cosines-loss", "Nanda et al., section 4.2",
          "with nothing but these cosines the loss falls, to 0.2 of what it was (2.4e-7 to "
          "4.7e-8)", "roughly", (0.28, 0.35), lambda: losses().cosines / losses().full,
          "it falls: the loss with the cosines alone, as a share of the full loss, which is "
          "0.00106"),
    Claim("nanda-4.3-neurons", "Nanda et al., section 4.3",
          "84.6 % of the neurons are explained to 85 % or more by one frequency", "holds",
          (0.85, 0.87), lambda: analyze_grok().neurons[0].single_frequency_share),
    Claim("nanda-4.4-restricted", "Nanda et al., section 4.4",
          "keeping only the waves of a + b lowers the loss by 77 %, to 0.23 of what it was",
          "roughly", (0.40, 0.46), lambda: losses().restricted / losses().full,
          "it is lower: restricted loss as a share of the full loss, over all pairs"),
    Claim("nanda-c.2-excluded", "Nanda et al., appendix C.2.1",
          "without the key frequencies: a loss of 6.5 to 11, worse than chance, in other seeds",
          "holds", (10.0, 10.8), lambda: analyze_grok().losses["train"].excluded,
          "excluded loss on the training pairs; chance is ln 113 = 4.7"),
    Claim("nanda-5-losses", "Nanda et al., sections 4.4 and 5.1",
          "restricted loss 5.5e-8, full loss 2.4e-7, excluded loss worse than chance", "holds",
          "restricted < full < chance < excluded", order_of_losses,
          "ours are 0.00046, 0.00106 and 10.8 after 11,900 epochs; theirs are after 40,000"),
    Claim("zhong-4.2-clock", "Zhong et al., section 4",
          "with attention that is trained, distance irrelevance 0.85: a clock (a pizza has 0.17)",
          "misleading", "0.44 raw, 0.81 centred", distance_irrelevances,
          "as published, of raw logits, ours is neither (a clock from 0.6, a pizza up to 0.4); "
          "less the mean over all answers, which changes no answer, it is a clock"),
    Claim("zhong-4.1-symmetricity", "Zhong et al., section 4",
          "gradient symmetricity tells a clock (33 %) from a pizza (99 %)", "misleading",
          (0.999, 1.001),
          lambda: gradient_symmetricity(load("modular-addition:variant=clock"),
                                        load_task("modular-addition")),
          "that of our hand-made clock, whose attention adds up a and b; grok-113 has 46 %. It "
          "tells whether attention chooses, not which algorithm follows"),
]  # fmt: skip

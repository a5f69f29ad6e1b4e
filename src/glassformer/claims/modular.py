"""What is published on addition modulo 113, measured on the model that comes with the package.

Nanda et al., *Progress measures for grokking via mechanistic interpretability* (2023), trained one
layer on 30 % of all pairs for 40,000 epochs. Ours, grok-113, has their shape and their share of
pairs, but another seed, and stopped after 11,900 epochs, when it was stable: kinds and ratios can
be compared, not every number. Zhong et al., *The Clock and the Pizza* (2023), have the two measures
that are to tell such models apart.
"""

import math
from functools import cache

from ..lens.modular.apart import Losses, ModularAnalysis, take_apart
from ..lens.modular.clock import gradient_symmetricity
from ..refs import load, load_task
from . import claim


@cache
def trained() -> ModularAnalysis:
    """grok-113, with losses on the pairs that it was trained on."""
    from ..training.data import Data
    from ..training.recipes import recipe

    task = load_task("modular-addition")
    return take_apart(
        load("grok-113.safetensors"), task, train_rows=Data(task, recipe("grok")).train_rows
    )


def losses() -> Losses:
    return trained().losses["all"]


@claim("nanda-4.1-key-frequencies", where="Nanda et al., section 4.1 and appendix C.2.1",
       verdict="holds",
       says="five key frequencies (14, 35, 41, 42, 52); three or four in other seeds",
       records="1, 5, 33, 50",
       note="our seed's, by our rule: waves to the logits at least a fifth as large as the "
            "largest")  # fmt: skip
def key_frequencies() -> str:
    return ", ".join(map(str, trained().key))


@claim("nanda-4.1-embedding", where="Nanda et al., section 4.1", verdict="holds", records=6,
       says="six frequencies of the embedding are not negligible, five of them are used",
       note="so many hold 90 % of our embedding's power: four that are used, and 10 = 2·5 and 2 = "
            "2·1")  # fmt: skip
def embedding_frequencies() -> int:
    return trained().embedding.needed(0.9)


@claim("nanda-4.1-share", where="Nanda et al., section 4.1", verdict="holds", records=(0.83, 0.842),
       says="the embedding is sparse: next to nothing outside a few frequencies",
       note="the key frequencies' share of its power; four of 56 would have 0.07 by "
            "chance")  # fmt: skip
def embedding_share() -> float:
    return trained().key_share


@claim("nanda-4.2-cosines", where="Nanda et al., section 4.2", verdict="roughly",
       records=(0.91, 0.92), says="95 % of the logits' variance is a sum of cos w(a + b − c)",
       note="another seed, and fewer epochs")  # fmt: skip
def cosines() -> float:
    return trained().explained


@claim("nanda-4.2-cosines-loss", where="Nanda et al., section 4.2", verdict="roughly",
       records=(0.28, 0.35),
       says="with nothing but these cosines the loss falls, to 0.2 of what it was (2.4e-7 to "
            "4.7e-8)",
       note="it falls: the loss with the cosines alone, as a share of the full loss, which is "
            "0.00106")  # fmt: skip
def cosines_loss() -> float:
    return losses().cosines / losses().full


@claim("nanda-4.3-neurons", where="Nanda et al., section 4.3", verdict="holds",
       records=(0.85, 0.87),
       says="84.6 % of the neurons are explained to 85 % or more by one frequency")  # fmt: skip
def neurons() -> float:
    return trained().neurons[0].single


@claim("nanda-4.4-restricted", where="Nanda et al., section 4.4", verdict="roughly",
       records=(0.40, 0.46),
       says="keeping only the waves of a + b lowers the loss by 77 %, to 0.23 of what it was",
       note="it is lower: restricted loss as a share of the full loss, over all pairs")  # fmt: skip
def restricted() -> float:
    return losses().restricted / losses().full


@claim("nanda-c.2-excluded", where="Nanda et al., appendix C.2.1", verdict="holds",
       records=(10.0, 10.8),
       says="without the key frequencies: a loss of 6.5 to 11, worse than chance, in other seeds",
       note="excluded loss on the training pairs; chance is ln 113 = 4.7")  # fmt: skip
def excluded() -> float:
    return trained().losses["train"].excluded


@claim("nanda-5-losses", where="Nanda et al., sections 4.4 and 5.1", verdict="holds",
       says="restricted loss 5.5e-8, full loss 2.4e-7, excluded loss worse than chance",
       records="restricted < full < chance < excluded",
       note="ours are 0.00046, 0.00106 and 10.8 after 11,900 epochs; theirs are after "
            "40,000")  # fmt: skip
def order_of_losses() -> str:
    values = {name: getattr(losses(), name) for name in ("full", "restricted", "excluded")}
    values["chance"] = math.log(113)
    return " < ".join(sorted(values, key=lambda name: values[name]))


@claim("zhong-4.2-clock", where="Zhong et al., section 4", verdict="holds", records=(0.79, 0.83),
       says="with attention that is trained, distance irrelevance 0.85: a clock (a pizza has "
            "0.17)")  # fmt: skip
def irrelevance() -> float:
    return trained().irrelevance


@claim("zhong-4.1-symmetricity", where="Zhong et al., section 4", verdict="misleading",
       records=(0.999, 1.001),
       says="gradient symmetricity tells a clock (33 %) from a pizza (99 %)",
       note="that of our hand-made clock, whose attention adds up a and b; grok-113 has 46 %. It "
            "tells whether attention chooses, not which algorithm follows")  # fmt: skip
def symmetricity() -> float:
    return gradient_symmetricity(
        load("modular-addition:variant=clock"), load_task("modular-addition")
    )

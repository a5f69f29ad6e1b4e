"""Draw the figures of docs/gallery.md: python docs/figures/gallery.py"""

import numpy as np
from current import put

from glassformer import load, load_task
from glassformer.lens.attention import attention_patterns
from glassformer.lens.compare import compare
from glassformer.lens.embeddings import before_and_after
from glassformer.lens.inspect import inspect
from glassformer.lens.rank import lora_update_rank
from glassformer.plotting import style
from glassformer.plotting.figures import attention, embeddings, interventions, rank
from glassformer.plotting.inspect import inspection_figures
from glassformer.training.loop import Trainer
from glassformer.training.recipes import find_recipe

style.DPI = 100


def save(fig, name):
    put(fig, f"gallery/{name}.png")


def shown(model, task, text):
    """Return patterns, tokens and answer start of one input with its answer."""
    s = inspect(model, task, task.edges()[:1], task.prompt(text), only=["trace"]).subject
    return attention_patterns(model, s.example[None])[:, 0], s.str_tokens, s.boundary


adder, reverser, hand = (
    load("adder-3.safetensors"),
    load("reverse-5.safetensors"),
    load("addition:digits=3,order=ones"),
)
task = load_task(adder)
rows = task.sample(4_000, np.random.default_rng(0))
drawn = inspection_figures(inspect(adder, task, rows, task.prompt("123+456")))
for name in (
    "attention",
    "attention-steps",
    "neurons",
    "norms",
    "stream",
    "singular-values",
    "truncation",
    "stopping",
    "shares",
    "patching-stream",
    "positions-similarity",
):
    save(drawn[name](), name)
for text in ("999+1",):
    p, words, boundary = shown(adder, task, text)
    save(attention.heatmaps(p, words, boundary), "attention-999")
mirror = load_task(reverser)
save(
    attention.model_grid(
        [
            ("addition", *shown(adder, task, "123+456")),
            ("reversal", *shown(reverser, mirror, "12345")),
        ]
    ),
    "addition-and-reversal",
)
start = Trainer(task, find_recipe("fast"), [4]).model(0)
save(embeddings.before_and_after(before_and_after(start, adder)), "tokens-before-after")
save(
    embeddings.before_and_after(before_and_after(start, adder, "positions")),
    "positions-before-after",
)
save(rank.update_rank_figure(lora_update_rank(start, adder, task, rows[:1_000])), "lora")
both = compare(hand, adder, task, rows[:1_000], names=("hand-made", "trained"))
save(interventions.comparison(both), "hand-and-trained")

"""Draw modular_*.png of the guide, figures of addition modulo 113 (half a minute)."""

from current import CLOSE, put

import glassformer as gf
from glassformer.lens.embeddings import token_embeddings
from glassformer.lens.modular.analysis import analyze_modular, modular_progress
from glassformer.plotting.figures import embeddings, fourier
from glassformer.training.loop import Trainer
from glassformer.training.recipes import find_recipe

grok, task = gf.load("grok-113.safetensors"), gf.load_task("modular-addition")
trained = analyze_modular(grok, task)
clock, pizza = (
    analyze_modular(gf.load(f"modular-addition:variant={v}"), task) for v in ("clock", "pizza")
)
figures = {
    "circle": embeddings.embedding_map(token_embeddings(grok), "The numbers of grok-113"),
    "spectrum": fourier.spectrum_bars(trained),
    "neurons": fourier.neuron_frequencies(trained),
    "right": fourier.right_logit_maps(
        [("trained", trained), ("hand-made clock", clock), ("hand-made pizza", pizza)]
    ),
}

run = Trainer(task, find_recipe("grok-fast"), [0])
models = [(0, run.model(0))]
models += [
    (event.step, run.model(0))
    for event in run.events()
    if event.kind == "evaluation" and event.step % 20 == 0
]
history = modular_progress(models, task, run.data.train_rows)
figures["losses"] = fourier.loss_curves(history, "modular-addition, recipe grok-fast, seed 0")

for name, figure in figures.items():
    put(figure, f"modular_{name}.png", close=0.2 if name == "losses" else CLOSE)

"""Draws the figures of the chapter "Looking inside": python docs/figures/inside.py"""

from pathlib import Path

from glassformer import load, load_task
from glassformer.lens.inspect import inspect
from glassformer.show.inspect import figures
from glassformer.show.style import save

SHOWN = ["attention-expected", "ablations", "interchange", "logit-lens", "alignment"]

here = Path(__file__).parent
model = load("adder-3.safetensors")
task = load_task(model)
draw = figures(inspect(model, task, prompt=task.prompt("999+1")))
for name in SHOWN:
    print(save(draw[name](), here / f"inside_{name}.png").name)

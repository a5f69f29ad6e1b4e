"""Draw the figures of the chapter "Looking inside": python docs/figures/inside.py"""

from current import put

from glassformer import load, load_task
from glassformer.lens.inspect import inspect
from glassformer.plotting.inspect import inspection_figures

SHOWN = ["attention-expected", "ablations", "interchange", "logit-lens", "alignment"]

model = load("adder-3.safetensors")
task = load_task(model)
draw = inspection_figures(inspect(model, task, prompt=task.prompt("999+1")))
for name in SHOWN:
    put(draw[name](), f"inside_{name}.png")

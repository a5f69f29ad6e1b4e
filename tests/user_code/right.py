"""Calls that a user may write: mypy --strict accepts every line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import glassformer as gf

model: gf.Model = gf.load("addition:digits=2")
gf.load(Path("a.safetensors"))
task: gf.Task = gf.load_task("addition:digits=2")
gf.load_task(model)
saved: Path = gf.save(model, "a.safetensors")
gf.export("addition", "gpt2", Path("folder"), tolerance=1e-3)
compiled = gf.compile("tokens = [*'ab']; length = 9; emit = token", dtype="float32")
gf.run(compiled, "a b")
gf.run(model, "1+2", steps=3, temperature=0.5, rng=np.random.default_rng(0), trace=True)
text: str = gf.run("min", "6 2 7").output
gf.decode(model, [1, 2, 3], 4, stop=0)
gf.decode(model, np.array([[1, 2]]), 4)
gf.forward(model.config, model.weights, [[1, 2]], last=1)
logits, cache = gf.record(model, "1+2")
names: list[str] = gf.hook_names(model.config)
total: int = gf.count(model).total
verdict: gf.Verdict = gf.verify(model)
gf.verify("addition", task, sample=5, seed=1, workers=2)
gf.verify(model, type(task), rows=[[1, 2]])
gf.verify(model, journal=Path("a.journal"))
gf.verify(model, out="v.json")
gf.recheck(model, verdict)
gf.prove(model, out="c.json").holds
gf.compare(model, model, sample=100)
gf.inspect(model, sample=100, seed=1)
gf.recheck(model, "verdict.json", "addition")
proved: bool = gf.prove(model).holds
right: int = gf.prove(model, accuracy=True).right
equal: str = gf.prove(model, equal_to="addition:variant=book").result
checked: bool = gf.prove(model, check="c.json").holds
gf.prove(model, method="certificate", independent_check=True)
gf.check_task("mine.py:Vote").holds
gf.check_puzzle("echo", "mine.taotp", seconds=5).passed
gf.claims(["booklet-2.4"], slow=True)
gf.adderboard("adder-least", max_counterexamples=3)
winner: str = gf.explain("min", [6, 2, 7]).winner
gf.inspect(model, only=["heads"], prompt="1+2")
gf.compare(model, "addition", names=("a", "b")).differ
gf.ablate(model, "head 0.0", "mean", task="addition")
gf.patch(model, "1+2", "3+4", ["head 0.0"], positions=-1).recovered
score: float = gf.attribute(model, "1+2", "3+4", "head 0.0", steps=3)
gf.interchange(model, "head 0.0", 100, seed=2)
gf.ground_truth("reverse").edges
gf.obfuscate("reverse", 3, rotate=False)
gf.report([model, "addition"], "page.html", inputs="1+2")
gf.studio(model, port=0, minutes=1.5).close()
trained: gf.Training = gf.fit("addition:digits=1", "fast", steps=5, lr=0.01, out="m.safetensors")
gf.fit(task, trained.recipe, seed=2, init_from=model, parametrization="low-rank:rank=2")
for event in gf.train("addition", seeds=[0, 1], steps=3):
    print(event.kind)
gf.ablation_study("addition", "fast", only="no-mlp", steps=3)
gf.sweep(Path("s.toml"), "folder", workers=2)


@gf.task("vote")
class Vote(gf.Task):
    pass


@gf.program("mine")
def mine(digits: int = 3) -> gf.Model:
    return model


@gf.view("seen")
def seen(subject: object) -> int:
    return 3


build: Callable[[int], gf.Model] = mine
made: Vote = Vote()

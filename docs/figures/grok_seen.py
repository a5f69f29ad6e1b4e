"""Make docs/explained/grok-seen: the snapshots and history of a run that groks.

    python docs/figures/grok_seen.py [FOLDER]     # a minute; then draw its picture, explained.py

The model is narrower than that of the recipe `grok-seen`, so that the page loads fast, and learns
more slowly. Some snapshots are kept, as float16.
"""

import sys
import tempfile
from pathlib import Path

import glassformer as gf
from glassformer.core.checkpoint import load, save
from glassformer.tasks.token_layout import answer_names
from glassformer.training.history import HistoryFile
from glassformer.training.loop import Trainer
from glassformer.training.recipes import find_recipe

FOLDER = Path(__file__).parents[1] / "explained/grok-seen"
TASK = "modular-addition:p=59,operation=-"
SETTINGS = {
    "d_model": 64, "d_head": 16, "d_mlp": 256, "train_fraction": 0.45, "weight_decay": 1.0,
    "schedule": "constant", "steps": 4_000, "restart_after_steps": 0, "stop_after_successes": 0,
}  # fmt: skip
KEPT = (0, 100, 200, 1_000, 1_800, 2_400, 2_800, 3_200, 3_600, 4_000)


def make(folder, kept=KEPT, **settings):
    """Train seed 0, and keep the models of some steps."""
    task = gf.load_task(TASK)
    chosen = find_recipe("grok-seen").override(SETTINGS | settings)
    with tempfile.TemporaryDirectory() as every:
        trainer = Trainer(task, chosen, [0], snapshots=Path(every, "all"))
        history = HistoryFile(folder / "history.jsonl", answer_names(task))
        for event in trainer.events():
            history(event)
        history.close()
        for step in kept:
            name = f"step-{step:06d}.safetensors"
            small = load(Path(every, "all", name)).map(lambda w: w.astype("float16"))
            save(small, folder / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)

"""What is refused before a run begins: a senseless call, too much memory, an absent device."""

import contextlib
import math
from collections.abc import Mapping, Sequence

import torch

from ..errors import GlassformerError
from ..limits import MEMBERS, PROCESSES, SEED, afford, within
from ..model import Model
from ..tasks.base import Task
from .data import first_length
from .initial import architecture
from .recipe import Recipe


def check_call(
    task: Task, seeds: Sequence[int], models: Mapping[str, Model | None], threads: int,
    saved: bool, resumed: bool,
) -> None:  # fmt: skip
    """`models`: what is read besides rows, by name. `saved`: the state is kept while it trains."""
    if len(set(seeds)) != len(seeds) or not seeds:
        raise GlassformerError(f"seeds — expected different numbers, got {list(seeds)}")
    if (saved or resumed) and len(seeds) > 1:
        why = "train one seed to keep its state"
        raise GlassformerError(f"an ensemble is not saved while it runs: {why}")
    if resumed and not saved:
        raise GlassformerError("resume — needs the file that the run was writing to: out=FILE")
    for what, model in models.items():
        if model and (its := model.vocabulary) != task.vocabulary:
            raise GlassformerError(f"{what} — its vocabulary {its} is not that of {task.ref}")
    within("train — threads", threads, 1, PROCESSES)
    within("train — the number of seeds", len(seeds), 1, MEMBERS)
    for seed in seeds:
        within("train — a seed", seed, 0, SEED)


def check_memory(task: Task, r: Recipe, members: int, start: Model | None) -> None:
    """Refuses a run whose rows, weights and activations are sure not to fit into memory."""
    T = first_length(task)
    rows = r.test_rows + (r.train_rows if r.data != "fresh" else 0)
    afford(f"training — {rows:,} rows of {task.ref}", rows * (8 * len(task.radix) + 9 * T))
    c, shapes = architecture(r, task, T, start)
    number = 4 if r.dtype == "float32" else 8  # bytes
    weights = sum(map(math.prod, shapes.values()))
    # good, gradient, state
    afford(f"training — {members:,} times {weights:,} weights", 4 * number * members * weights)
    batch = r.batch if r.data == "fresh" else min(r.batch or r.train_rows, r.train_rows)
    row = max(c.n_layers - 1, 0) * (T * (2 * c.d_model + c.d_mlp) + c.n_heads * T * T)
    afford(f"training — {members:,} times a batch of {batch:,}", number * members * batch * row)


def find_device(name: str) -> torch.device:
    """A device by name: cpu, cuda, cuda:1, mps; an error if it is not here."""
    # others that PyTorch knows have no numbers, or warn
    if name.partition(":")[0] in ("cpu", "cuda", "mps"):
        with contextlib.suppress(RuntimeError, AssertionError, NotImplementedError):
            return torch.ones(1, device=name).device
    more = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    here = ", ".join(["cpu", *(name for name, is_here in more.items() if is_here)])
    raise GlassformerError(f"device {name} — not available on this machine; there is {here}")

"""Measurements of trained models over many seeds, and the share of runs in which a statement holds.

One run says little about "the" trained model: other seeds, and the same seed on another machine,
divide the work between heads differently. benchmarks/statements.py trains a model for each seed,
measures it with the functions below and adds a line to a file in runs/. A claim is a condition on
such a line. It is measured as the number of runs that meet the condition, with the exact 95 %
interval (Clopper and Pearson, 1934) of the share of all seeds that would.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from ..core.model import Hook, Model
from ..lens.attention import Alignment, alignment, attention_patterns, entropy
from ..lens.heads import classify_heads, mean_attention_from
from ..lens.interventions.ablate import ablate, ablation_hook, reference_tokens
from ..lens.interventions.patch import Interchange, interchange
from ..lens.interventions.perturb import PerturbationComparison, perturb
from ..lens.rank import hidden_rank_ranges, truncation
from ..resolve import load_task
from ..tasks.base import Rows, Task
from ..verification.counts import upper_bound
from ..verification.evaluation import Score, score
from . import MIN_RUNS as MIN_RUNS
from .measures import cached_model, read_run_file

LEARNED = 0.99  # accuracy from which an answer token counts as learned
Run = dict[str, Any]
Condition = Callable[[Run], Any]  # true or false, NumPy's included

# Group -> (task, recipe, settings) of its runs. runs/GROUP.jsonl has a line for each.
GROUPS = {
    "report": ("modular-addition:plus=true", "mod113-3x4", {}),
    "adder": ("addition:order=ones", "fast", {"stop_after_successes": 20, "steps": 1500}),
}


# ── shares of runs ───────────────────────────────────────────────────────────────────────────────
@cache
def read_runs(group: str) -> list[Run]:
    """Return the recorded runs of a group."""
    return [json.loads(line) for line in read_run_file(f"{group}.jsonl").splitlines()]


def share_interval(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share of which k of n were seen."""
    one_side = (1 + confidence) / 2
    return 1 - upper_bound(n - k, n, one_side), upper_bound(k, n, one_side)


def holds_in(group: str, condition: Condition) -> str:
    """Return in how many runs of a group a condition holds, with the interval of the share."""
    runs = read_runs(group)
    k, n = sum(bool(condition(run)) for run in runs), len(runs)
    low, high = share_interval(k, n)
    return f"{k} of {n} runs [{low:.0%}, {high:.0%}]".replace("%", " %")


def over_runs(group: str, condition: Condition) -> dict[str, Any]:
    """Return the fields of a claim that counts the runs of a group that meet a condition."""
    return {"measure": lambda: holds_in(group, condition), "runs": len(read_runs(group))}


def value_range(group: str, measure: Callable[[Run], float], decimals: int = 2) -> str:
    """Return the least, the median and the largest value of a measure over the runs of a group."""
    values = [measure(run) for run in read_runs(group)]
    low, middle, high = (float(np.quantile(values, q)) for q in (0, 0.5, 1))
    return f"{low:.{decimals}f} … {middle:.{decimals}f} … {high:.{decimals}f}"


def rounded(x: Any, decimals: int = 4) -> Any:
    """Return numbers as rounded Python floats, for a line of JSON."""
    return np.asarray(x, dtype=float).round(decimals).tolist()


def measure_history(history: Sequence[Run]) -> Run:
    """Measure the evaluations of a run: memorization, and when each answer token was learned."""
    learned = np.array([e["digits"] for e in history]) >= LEARNED  # E n
    steps = [e["step"] for e in history]
    return {
        "train_lead": rounded(max(e["train_accuracy"] - e["accuracy"] for e in history)),
        "learned_at": [steps[i] if d.any() else None
                       for d, i in zip(learned.T, learned.argmax(0).tolist(), strict=True)],
    }  # fmt: skip


# ── the report's model ───────────────────────────────────────────────────────────────────────────
EXAMPLES = ((5, 8), (90, 90), (50, 0))  # the inputs of the report
ABLATION_ROWS = 2_000


def measure_report(model: Model, task: Task) -> Run:
    """Measure the heads of a model of `a + b =` over all pairs, and its parts at their means."""
    c, tokens = model.config, task.batch(task.rows(0, task.size))[0][:, :-1]
    classes = classify_heads(model, task)
    rows = task.sample(ABLATION_ROWS, np.random.default_rng(1))
    mlps, heads = ([f"{kind} {i}" for i in range(c.n_layers)] for kind in ("mlp", "attention"))
    return {
        "wrong": score(model, task).wrong,
        "attention": rounded(mean_attention_from(model, tokens)),  # L H, over a + b =
        "bits": rounded([h.entropy for h in classes.heads]),
        "kinds": [h.kind for h in classes.heads],
        "kinds_of_examples": [
            [h.kind for h in classify_heads(model, task, np.array([pair]) % task.radix).heads]
            for pair in EXAMPLES
        ],
        "without": {
            "+".join(names): accuracy_without(model, task, names, rows)
            for names in ([[name] for name in (*heads, *mlps)] + [heads[1:], mlps])
        },
    }  # fmt: skip


def accuracy_without(model: Model, task: Task, components: Sequence[str], rows: Rows) -> float:
    """Return the accuracy with all of the components replaced by their means."""
    reference = reference_tokens(task)
    hooks: list[Hook] = [ablation_hook(model, name, "mean", reference) for name in components]

    def hook(name: str, value: Any) -> Any:
        for each in hooks:
            value = each(name, value)
        return value

    return float(rounded(score(model, task, rows, hook=hook).accuracy))


# ── the book's adder ─────────────────────────────────────────────────────────────────────────────
class AdderMeasurements:
    """Measurements of a model of the book's shape: two layers of one head, ones first."""

    def __init__(self, model: Model) -> None:
        self.model, self.task = model, load_task("addition:order=ones")

    def sample(self, n: int) -> Any:
        return self.task.sample(n, np.random.default_rng(0))

    @cached_property
    def alignment(self) -> Alignment:
        return alignment(self.model, self.task, self.sample(2_000))

    def attention_share(self, places: str, layer: int) -> float:
        """Return the fraction of a layer's attention on the given places."""
        return float(self.alignment.mean_share(places)[layer, 0])

    @cached_property
    def interchanges(self) -> list[Interchange]:
        return [interchange(self.model, self.task, f"head {i}.0", 200) for i in (0, 1)]

    @cached_property
    def swaps(self) -> PerturbationComparison:
        """Digits swapped, compared with the hand-made adder."""
        return perturb(self.model, cached_model("addition:digits=3,order=ones"), self.task)

    @cached_property
    def without_head(self) -> list[Score]:
        """Scores with each layer's head at its mean."""
        rows = self.sample(4_000)
        return [ablate(self.model, self.task, f"head {i}.0", "mean", rows=rows) for i in (0, 1)]

    @cached_property
    def cascade_bits(self) -> float:
        """Entropy of layer 2's answer rows on 999+001 less that on 123+456."""
        tokens, answer = self.task.batch(np.array([[123, 456], [999, 1]]))
        patterns = attention_patterns(self.model, tokens[:, :-1])
        bits = entropy(patterns)[1, :, 0][:, answer[0, 1:]].mean(1)
        return float(bits[1] - bits[0])

    def to_json(self) -> Run:
        agreements = {"question": self.swaps.question, "written": self.swaps.written}
        return {
            "wrong_of_10000": score(self.model, self.task, self.sample(10_000)).wrong,
            "aligned": rounded([self.attention_share("aligned", i) for i in (0, 1)]),
            "carry": rounded([self.attention_share("carry", i) for i in (0, 1)]),
            "ideal_map": rounded(self.attention_share("late", 0)),
            "moves_carry": [rounded(x.explanation_shares("carry")) for x in self.interchanges],
            "moves_both": [rounded(x.explanation_shares("both")) for x in self.interchanges],
            "cascade_bits": rounded(self.cascade_bits),
            "without_head": rounded([s.accuracy for s in self.without_head]),
            "ones_without_head": rounded([s.positions[0] for s in self.without_head]),
            "swaps": {
                name: rounded(agreement.predicted[0])
                for name, agreement in agreements.items() if agreement
            },
            "ranks": {name: rounded(ends, 2)
                      for name, ends in hidden_rank_ranges(self.model).items()},
            "cut_to_rank": {cut.rank: rounded(cut.accuracy)
                            for cut in truncation(self.model, self.task, [8, 16, 20],
                                                  self.sample(2_000))},
        }  # fmt: skip


def measure_adder(model: Model, task: Task) -> Run:
    """Measure a model of the book's shape."""
    return AdderMeasurements(model).to_json()


# Group -> what is measured of a run.
MEASURES = {"report": measure_report, "adder": measure_adder}

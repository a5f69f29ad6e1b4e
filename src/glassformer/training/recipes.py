"""The built-in recipes, the recipe `auto` that fits a task, and recipes read from files.

If the source of a recipe does not state a value, the value was chosen here and a comment names it.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..registry import load_entry_point
from ..tasks.base import Task
from ..utils import migrate
from ..utils.errors import GlassformerError, unknown_name_error
from ..utils.fileio import read_text
from ..utils.limits import MAX_TEXT_BYTES
from ..utils.typed_json import parse_json
from .data import example_length, supports_near_ties
from .recipe import MAX_STEPS, Recipe, recipe_option

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BOOK = Recipe(  # 17,760 parameters; weight decay, betas and clip are chosen here
    name="book",
    n_layers=2, n_heads=1, d_model=32, d_mlp=64, tied=True, optional_params="norms mlp",
    extra_positions=1, activation="gelu", loss="all",
    data="draw", train_rows=50_000, test_rows=10_000, data_seed=42, batch=512,
    optimizer="adamw", lr=0.01, warmup=200, schedule="cosine", steps=150 * 98, evaluate_every=98,
    weight_decay=0.01, beta1=0.9, beta2=0.999, clip=1.0,
)  # fmt: skip

FAST = replace(
    BOOK, name="fast", embed_std=0.1, batch=128, loss="answer", focal=2.0,
    optimizer="muon", lr=0.006, muon_lr=0.006, momentum=0.8, beta2=0.98,
    warmup=50, schedule="plateau", decay_when_loss_below=0.15, decay_steps=300,
    final_lr_fraction=0.1, ema=0.95, steps=2_000, evaluate_every=20, stop_after_successes=1,
)  # fmt: skip

GROK = Recipe(  # the usual experiment on addition modulo 113: 226,816 parameters, 30 % of all pairs
    name="grok",
    n_layers=1, n_heads=4, d_model=128, d_head=32, d_mlp=512, norm="none", activation="relu",
    tied=False, optional_params="mlp", init="normal",
    data="split", train_fraction=0.3, test_rows=0, batch=0, loss="answer",
    optimizer="adamw", lr=0.001, beta1=0.9, beta2=0.98, weight_decay=1.0, clip=0.0,
    warmup=10, schedule="constant", steps=20_000, evaluate_every=100, target_accuracy=0.999,
    stop_after_successes=10,
)  # fmt: skip

# Ten times grok's rate, for any modulus: a small one needs nearly all pairs, 113 needs 40 %. With
# all of grok's weight decay, subtraction cannot learn all pairs. The rate falls slowly once nearly
# all test rows are right. Runs that settle on too few frequencies for all pairs are restarted.
GROK_FAST = replace(
    GROK, name="grok-fast", train_fraction=0.9, train_rows_per_symbol=45.2, eval_screen_rows=1_000,
    batch=512, lr=0.01, weight_decay=0.5, schedule="plateau", decay_when_accuracy_above=0.99,
    decay_steps=1_000, final_lr_fraction=0.1, ema=0.98, steps=9_000, restart_after_steps=3_000,
    evaluate_every=20, target_accuracy=1.0, stop_after_successes=5,
)  # fmt: skip

# A small grokking run: training rows are right long before test rows. Its task is subtraction,
# which has no symmetry a + b = b + a. Strong weight decay makes some seeds fail; they restart.
GROK_SEEN = replace(
    GROK, name="grok-seen", train_fraction=0.5, lr=0.003, weight_decay=1.5, ema=0.98, steps=10_000,
    restart_after_steps=2_500, target_accuracy=1.0, stop_after_successes=5,
)  # fmt: skip

MOD113 = Recipe(  # The report gives layers, heads, tokens and epochs; the rest is ours.
    name="mod113-3x4",
    n_layers=3, n_heads=4, d_model=128, d_head=32, d_mlp=512, norm="layer", activation="relu",
    tied=False, optional_params="norms mlp", init="uniform", embed_std=0.1,
    data="split", train_fraction=0.8, test_rows=0, batch=128, loss="answer",
    optimizer="adamw", lr=0.001, beta1=0.9, beta2=0.98, weight_decay=0.1, clip=1.0,
    warmup=100, schedule="cosine", steps=50 * 80, evaluate_every=80,
)  # fmt: skip

REVERSE = replace(BOOK, name="reverse", steps=30 * 98)

ADDER_10 = Recipe(
    name="adder-10",
    n_layers=2, n_heads=2, d_model=64, d_mlp=128, tied=True, optional_params="norms mlp",
    activation="gelu", init="uniform", embed_std=0.1,
    data="fresh", test_rows=5_000, batch=256, loss="answer", focal=2.0,
    curriculum="3@0 6@500 10@1000",
    optimizer="muon", lr=0.006, muon_lr=0.006, momentum=0.9, weight_decay=0.01, clip=1.0,
    warmup=100, schedule="plateau", decay_when_loss_below=0.01, decay_steps=500, ema=0.95,
    steps=6_000, evaluate_every=100, stop_after_successes=3,
)  # fmt: skip

TINY_ARC = Recipe(
    name="tiny-arc",
    n_layers=1, n_heads=1, d_model=3, d_head=4, d_mlp=3, norm="rms", qk_norm=True,
    activation="silu", tied=True, optional_params="qk gate final",
    positions="rotary", base=9.144,  # the second frequency, base^-1/2, has a period of 19 tokens
    data="fresh", test_rows=2_000, batch=64, loss="answer",
    optimizer="adamw", lr=0.04, beta1=0.9, beta2=0.98, weight_decay=0.0, clip=1.0,
    warmup=50, schedule="cosine", final_lr_fraction=0.02, steps=3_000, evaluate_every=250,
)  # fmt: skip

TINY_MIRROR = replace(
    TINY_ARC, name="tiny-mirror",
    d_mlp=2, norm="none", qk_norm=False, activation="relu", optional_params="", lr=0.03,
    steps=2_500,
)  # fmt: skip

# The model of "Compact Proofs of Model Performance" (arXiv 2406.11779): one head, no MLP, no norm,
# no biases. The initial weights were chosen here.
MAX_OF_K = Recipe(
    name="max-of-k",
    n_layers=1, n_heads=1, d_model=32, d_head=32, d_mlp=0, norm="none", tied=False,
    optional_params="", init="normal", data="fresh", test_rows=5_000, batch=128, loss="answer",
    optimizer="adamw", lr=0.001, beta1=0.9, beta2=0.999, weight_decay=0.01, clip=0.0,
    schedule="constant", steps=3_000, evaluate_every=1_000,
)  # fmt: skip

COUPLED = Recipe(
    name="coupled",
    n_layers=1, n_heads=1, d_model=7, d_head=2, d_mlp=16, norm="none", activation="relu",
    tied=True, optional_params="", positions="learned", dtype="float64",
    data="fresh", test_rows=2_000, batch=64, loss="answer",
    optimizer="adamw", lr=0.02, beta1=0.9, beta2=0.98, weight_decay=0.0, clip=1.0,
    warmup=50, schedule="cosine", final_lr_fraction=0.02, steps=3_000, evaluate_every=250,
)  # fmt: skip

RECIPES = {r.name: r for r in [*vars().values()] if isinstance(r, Recipe)}
RECIPE_SUMMARIES = {
    "book": "The book's: two layers, 17,760 parameters, 150 epochs of 50,000 sums.",
    "fast": "The book's model and sums with Muon, in about 20 times fewer steps: seconds.",
    "grok": "One layer on 30 % of all pairs modulo 113, as in the papers on grokking.",
    "grok-fast": "The model of grok in some hundred steps at most moduli, two thousand at some.",
    "grok-seen": "Grokking to watch: modular-addition:p=59,operation=-, some 2,000 steps.",
    "mod113-3x4": "Three layers of four heads modulo 113, as in the report.",
    "reverse": "The book's model on reversal.",
    "adder-10": "Sums of ten digits, after sums of three and six.",
    "tiny-arc": "Sums of ten digits with 34 numbers: digit-addition --parametrization arc-adder.",
    "tiny-mirror": "Sums of ten digits with 6, 7 or 11 numbers: --parametrization mirror-adder.",
    "max-of-k": "The largest of K numbers by one head alone: max:vocab=64,length=K.",
    "coupled": "Sums of ten digits, then of any length: --parametrization coupled-adder.",
}


def find_recipe(name: str) -> Recipe:
    """Return a recipe by the name of a built-in recipe or of one in an installed package."""
    if name not in RECIPES and isinstance(recipe := load_entry_point("recipe", name), Recipe):
        return recipe
    if name == "auto":
        wanted = "expected a task to choose the recipe for, got none"
        raise GlassformerError(f"auto — {wanted}. Use glassformer train TASK or gf.fit(task)")
    if name not in RECIPES:
        raise unknown_name_error("recipe", name, [*RECIPES, "auto"], cutoff=0.4)
    return RECIPES[name]


def choose_recipe(name: str, task: Task) -> Recipe:
    """Return a recipe by name or file; "" is `auto`."""
    if name in ("", "auto"):
        return recipe_for_task(task)
    return read_recipe(Path(name)) if name.endswith((".json", ".toml")) else find_recipe(name)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a JSON or TOML file; missing fields have their defaults."""
    is_json = path.suffix == ".json"
    values = parse_json(read_text(path, MAX_TEXT_BYTES), path) if is_json else read_toml(path)
    if not isinstance(values, dict):
        raise GlassformerError(f"{path} — expected fields of a recipe and their values")
    try:
        return recipe_from_json({"name": path.stem} | values)
    except GlassformerError as e:
        raise GlassformerError(f"{path} — {e}") from None


def recipe_from_json(values: Mapping[str, Any]) -> Recipe:
    """Return a recipe from its JSON; fields may have old names, and missing ones their defaults."""
    return Recipe(**{n: recipe_option(n).check(v) for n, v in migrate.recipe(values).items()})


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file and return its contents as a dict."""
    text = read_text(path, MAX_TEXT_BYTES)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        raise GlassformerError(f"{path} — not TOML: {e}") from None


# ── the recipe `auto` ──────────────────────────────────────────────────────────────────────────
SMALL_DOMAIN_ROWS = 1_000  # Domains up to this size are too small for held-out rows.
LARGE_DOMAIN_ROWS = 200_000  # Larger domains hold out a twentieth.
LONG_TEXT_TOKENS = 24  # twice the width, four times the neurons
VERY_LONG_TEXT_TOKENS = 64  # rotary positions and a curriculum
FIRST_LEVEL, STEPS_PER_LEVEL = 8, 300  # curriculum: first level and steps; levels double
LARGE_VOCABULARY = 100  # A small batch lacks most of this many tokens.


def recipe_for_task(task: Task) -> Recipe:
    """Return the recipe `auto`, chosen by a task's size, vocabulary, example length and kind.

    A run with this recipe continues until the whole domain is right, or a random sample of a domain
    too large to enumerate. docs/trained.md has the results.
    """
    small = task.size <= SMALL_DOMAIN_ROWS
    if task.modular and not small:
        return replace(GROK_FAST, name="auto", stop_after_successes=1, full_domain_steps=600)
    holdout = 0.1 if task.size <= LARGE_DOMAIN_ROWS else 0.05
    fields: dict[str, Any] = {"data": "fresh", "holdout_fraction": holdout}
    fields.update(eval_screen_rows=1_000, steps=8_000, full_domain_steps=2_000)
    if len(task.vocabulary) >= LARGE_VOCABULARY:
        fields.update(d_model=64, d_mlp=128, batch=1_024, focal=0.0, evaluate_every=50, steps=5_000)
        fields.update(decay_when_loss_below=0.05, decay_steps=1_200, final_lr_fraction=0.05)
        fields.update(near_tie_fraction=0.75 * supports_near_ties(task), full_domain_steps=4_000)
    else:
        n, layout = example_length(task), task.layout()
        fields.update(n_heads=4, lr=0.01, muon_lr=0.02, decay_when_loss_below=0.03)
        if n > LONG_TEXT_TOKENS:
            fields.update(d_model=64, d_mlp=256, decay_when_loss_below=0.05, decay_steps=1_500)
        elif layout and layout.ones_first:  # Each answer token depends on one column and one carry.
            fields.update(n_layers=1)
        if n > VERY_LONG_TEXT_TOKENS:
            fields.update(positions="rotary", d_head=32, d_mlp=64, focal=0.0, decay_steps=1_000)
            fields.update(test_rows=2_000, evaluate_every=100)
            fields.update(curriculum=_doubling_curriculum(task, n))
    if small:
        fields.update(holdout_fraction=0.0, near_tie_fraction=0.0, curriculum="")
        fields.update(data="all", test_rows=0, eval_screen_rows=0)
    return replace(FAST, name="auto", **fields)


def _doubling_curriculum(task: Task, length: int) -> str:
    """Return a curriculum of lengths doubling to `length`; "" if the task has no such levels."""
    try:
        task.at_difficulty(task.rows(0, 1), FIRST_LEVEL)
    except GlassformerError:
        return ""
    levels = [FIRST_LEVEL]
    while 2 * levels[-1] < length:
        levels.append(2 * levels[-1])
    levels.append(MAX_STEPS)  # The last level is the full task.
    return " ".join(f"{level}@{STEPS_PER_LEVEL * i}" for i, level in enumerate(levels))

"""Recipes: everything that a training run needs besides task and blueprint, as plain data.

Its fields stand in sections: `Architecture`, `Examples`, `Loss`, `Optimization`, `Schedule`,
`Averages`, `Course`. A `Recipe` is all of them at once, so that a field has one short name wherever
it is typed: `recipe.lr`, `--set lr=0.01`, `replace(recipe, lr=0.01)`, "lr" in JSON. What needs one
section only says so by its type: `Data(task, examples)`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from ..core.model import ACTIVATIONS, MASKS, NORMS, POSITIONS, Config, Model
from ..core.weight_shapes import array_shapes, name_in_block, required_shapes
from ..registry import Option
from ..utils.argcheck import validate_init, validate_method
from ..utils.errors import GlassformerError, short_repr, unknown_name_error
from ..utils.limits import MAX_SEED
from ..utils.results import Displayable
from .train_hooks import TRAIN_HOOKS

T = TypeVar("T")

OPTIONAL_PARAMS = {  # word -> optional arrays
    "norms": ("ln1.w", "ln1.b", "ln2.w", "ln2.b", "ln_final.w", "ln_final.b"),
    "gains": ("ln1.w", "ln2.w", "ln_final.w"),
    "mlp": ("mlp.b_in", "mlp.b_out"),
    "attention": ("attn.b_Q", "attn.b_K", "attn.b_V", "attn.b_O"),
    "gate": ("mlp.W_gate",),
    "qk": ("attn.q_norm.w", "attn.k_norm.w"),
    "final": ("ln_final.w",),
    "head": ("unembed.b_U",),
}
DATA_MODES, SCHEDULES = ("fresh", "split", "draw", "all"), ("constant", "cosine", "linear", "wait")
INITS, OPTIMIZERS = ("uniform", "normal"), ("adamw", "muon")
MAX_STEPS = 10**9  # some days of the smallest model's
MAX_TEXT_CHARS = 1_000  # characters of a text


def setting(
    default: T,
    help: str,
    choices: Iterable[str] = (),
    min_value: float = 0,
    max_value: float = math.inf,
) -> T:
    """A field of a recipe: its default, what it means, and what it may be."""
    may_be = {"choices": tuple(choices), "least": min_value, "most": max_value}
    return field(default=default, metadata={"help": help, **may_be})


@dataclass(frozen=True)
class RecipeSection(Displayable):
    """Fields that are checked one by one when set. All sections of a recipe share its name."""

    name: str = setting("custom", "what reports and tables call it")

    def __post_init__(self) -> None:
        for f in fields(self):
            try:
                object.__setattr__(self, f.name, _check_field(f, getattr(self, f.name)))
            except GlassformerError as e:
                known = isinstance(self.name, str)
                called = " ".join(self.name.split())[:60] if known else "custom"
                raise GlassformerError(f"recipe {called} — {e}") from None


@dataclass(frozen=True)
class Architecture(RecipeSection):
    """The model: its config, which arrays it has, and how they begin."""

    n_layers: int = setting(2, "blocks", max_value=1_000)
    n_heads: int = setting(1, "heads of a block", min_value=1, max_value=4_096)
    d_model: int = setting(32, "width of the stream", min_value=1, max_value=65_536)
    d_head: int = setting(0, "width of a head; 0: together as wide as the stream", max_value=65_536)
    d_mlp: int = setting(64, "neurons of a block; 0: it has no MLP", max_value=2**20)
    norm: str = setting("layer", "layer, rms or none", NORMS)
    norm_first: bool = setting(True, "before a sublayer; false: after the residual sum, as in 2017")
    activation: str = setting("gelu", "of the neurons", ACTIVATIONS)
    positions: str = setting("learned", "how a position is told from another", POSITIONS)
    base: float = setting(10_000.0, "of rotary and sinusoidal frequencies")
    mask: str = setting("causal", "who sees whom", MASKS)
    qk_norm: bool = setting(False, "the norm, also on every head's q and k")
    tied: bool = setting(True, "the head is the token embedding")
    optional_params: str = setting("norms mlp", "which optional arrays there are: words of EXTRAS")
    extra_positions: int = setting(0, "positions beyond what the task needs", max_value=2**20)
    train_hook: str = setting("", "an ablation that no config can say", TRAIN_HOOKS)
    init: str = setting("uniform", "±1/sqrt(fan in); normal: all normal, /sqrt(d_model)", INITS)
    embed_std: float = setting(1.0, "of uniform's embeddings, which are normal")

    @validate_method
    def config(self, d_vocab: int, length: int) -> Config:
        """The model's config for a task of so many tokens and examples of so many."""
        chosen = {n: getattr(self, n) for n in SHAPE_FIELDS}
        return Config(d_vocab=d_vocab, n_ctx=length - 1 + self.extra_positions, **chosen)

    @validate_method
    def weight_shapes(self, config: Config) -> dict[str, tuple[int, ...]]:
        """Name -> shape of the arrays that are trained: the required ones and the extras."""
        extras = {n for word in self.optional_params.split() for n in OPTIONAL_PARAMS[word]}
        if not config.d_mlp:
            extras = {n for n in extras if not n.startswith(("mlp.", "ln2."))}
        if not config.norm_first:
            extras = {n for n in extras if not n.startswith("ln_final.")}
        if config.norm == "none":
            extras = {n for n in extras if not n.startswith("ln")}
        names = extras | set(required_shapes(config))
        return {n: s for n, s in array_shapes(config).items() if {n, name_in_block(n)} & names}


@dataclass(frozen=True)
class DataSettings(RecipeSection):
    """Which rows are trained on, and which are tested."""

    data: str = setting(
        "fresh", "every step; split: part of the domain; draw: may overlap", DATA_MODES
    )
    train_rows: int = setting(50_000, "of split and draw", min_value=1, max_value=10**8)
    train_fraction: float = setting(0.0, "split: of all rows; 0: train_rows of them", max_value=1)
    train_rows_per_symbol: float = setting(
        0.0, "split: rows for each value of the largest number, up to train_fraction; 0: the share",
        max_value=10**8,
    )  # fmt: skip
    holdout_fraction: float = setting(
        0.0, "fresh: kept for the test, by a hash; 0: as drawn", max_value=0.5
    )
    near_tie_fraction: float = setting(
        0.0, "fresh: share of rows whose numbers are brought near one", max_value=1
    )
    test_rows: int = setting(10_000, "0: split tests on all the rest", max_value=10**8)
    eval_screen_rows: int = setting(
        0, "tested first, all if these are right; 0: all", max_value=10**8
    )
    data_seed: int = setting(
        0, "of what is split and drawn, and of the test rows", max_value=MAX_SEED
    )
    batch: int = setting(512, "rows of a step; 0: all training rows", max_value=10**7)
    curriculum: str = setting("", '"3@0 6@2000": up to level 3 from step 0, 6 from step 2000, …')

    @validate_method
    def training_rows(self, size: int, largest: int) -> int:
        """How many rows data=split trains on, of so many; `largest`: the largest of the radix."""
        if not self.train_fraction:
            return self.train_rows
        n, each = (
            int(self.train_fraction * size),
            int(self.train_rows_per_symbol * min(largest, MAX_STEPS)),
        )
        return max(1, min(n, each) if self.train_rows_per_symbol else n)

    def levels(self) -> list[tuple[int, int]]:
        """The curriculum as (step, level), by step."""
        try:
            pairs = [tuple(map(int, part.split("@"))) for part in self.curriculum.split()]
            if any(
                not 1 <= level <= MAX_STEPS or not 0 <= step <= MAX_STEPS for level, step in pairs
            ):
                raise ValueError
            return sorted((step, level) for level, step in pairs)
        except ValueError:
            wanted = (
                f"expected level@step words such as '3@0 6@2000', got {short_repr(self.curriculum)}"
            )
            raise GlassformerError(f"recipe {self.name} — curriculum: {wanted}") from None


@dataclass(frozen=True)
class Loss(RecipeSection):
    """What is minimised."""

    loss: str = setting("answer", "on the answer, or on all positions", ("answer", "all"))
    focal: float = setting(0.0, "tokens weigh (1 - p)^focal")


@dataclass(frozen=True)
class Optimization(RecipeSection):
    """How a gradient becomes a step."""

    optimizer: str = setting("adamw", "muon: on blocks' matrices, adamw on the rest", OPTIMIZERS)
    lr: float = setting(0.001, "learning rate of adamw")
    muon_lr: float = setting(0.006, "learning rate of muon")
    momentum: float = setting(0.8, "of muon, Nesterov's", max_value=1)
    beta1: float = setting(0.9, "of adamw: how slowly its mean forgets", max_value=0.999999)
    beta2: float = setting(0.98, "of adamw: how slowly its variance forgets", max_value=0.999999)
    weight_decay: float = setting(0.01, "of both, times the learning rate")
    clip: float = setting(1.0, "largest norm of the gradient; 0: none")


@dataclass(frozen=True)
class Schedule(RecipeSection):
    """What becomes of the learning rate from step to step."""

    warmup: int = setting(0, "steps in which it rises to its full size", max_value=MAX_STEPS)
    schedule: str = setting("constant", "wait: until decay_when_loss_below, then linear", SCHEDULES)
    decay_when_loss_below: float = setting(
        0.15, "wait: the smoothed loss under which the rate begins to decay"
    )
    decay_when_accuracy_above: float = setting(
        0.0, "wait: until this share of tests; 0: the loss", max_value=1
    )
    decay_from: int = setting(0, "linear: the step at which it starts", max_value=MAX_STEPS)
    decay_steps: int = setting(
        0, "linear and wait: over so many steps; 0: to the end", max_value=MAX_STEPS
    )
    final_lr_fraction: float = setting(
        0.0, "what is left of the rate at the end, as a share", max_value=1
    )


@dataclass(frozen=True)
class Averaging(RecipeSection):
    """Means over steps, of gradients and of weights."""

    grokfast: float = setting(0.0, "> 0: slow gradients are amplified so many times")
    grokfast_decay: float = setting(0.98, "how slowly the slow gradients forget", max_value=1)
    ema: float = setting(
        0.0, "> 0: an average of the weights is evaluated and kept", max_value=0.999999
    )


@dataclass(frozen=True)
class RunLimits(RecipeSection):
    """How long a run takes, how often it is looked at, and what ends it."""

    steps: int = setting(1_000, "at most", min_value=1, max_value=MAX_STEPS)
    evaluate_every: int = setting(100, "so many steps", min_value=1, max_value=MAX_STEPS)
    target_accuracy: float = setting(1.0, "share of test rows right")
    stop_after_successes: int = setting(
        0, "stop after so many successes in a row; 0: never", max_value=MAX_STEPS
    )
    restart_after_steps: int = setting(
        0, "begin anew with other weights after so many steps, unless at success then; 0: never",
        max_value=MAX_STEPS,
    )  # fmt: skip
    full_domain_steps: int = setting(
        0, "steps more, on what is wrong in the whole domain; 0: none", max_value=MAX_STEPS
    )
    abort_after_steps: int = setting(
        0, "from this step, stop below hopeless_at; 0: never", max_value=MAX_STEPS
    )
    abort_below_accuracy: float = setting(0.0, "share of test rows right, at an evaluation")
    dtype: str = setting("float32", "of all that is computed", ("float32", "float64"))


@validate_init(check_kinds=False)
@dataclass(frozen=True)
class Recipe(RunLimits, Averaging, Schedule, Optimization, Loss, DataSettings, Architecture):
    """How to train. Print it, save it, change it: `replace(recipe, lr=0.01)`, `--set lr=0.01`."""

    # In that order, as the fields of the last section come first: name, n_layers, … dtype.

    def __post_init__(self) -> None:
        """Each field by itself, then what does not go together."""
        super().__post_init__()
        levels, wrong = self.levels(), ""
        if not self.name.isprintable():
            wrong = f"name must be a text on one line, got {short_repr(self.name)}"
            raise GlassformerError(f"recipe — {wrong}")
        if unknown := [w for w in self.optional_params.split() if w not in OPTIONAL_PARAMS]:
            wrong = f"extras: expected words of {', '.join(OPTIONAL_PARAMS)}, got {unknown[0]}"
        elif self.data == "fresh" and not self.batch:
            wrong = "batch=0 (all training rows) does not go with data=fresh"
        elif self.data not in ("split", "all") and not self.test_rows:
            wrong = "test_rows=0 (all the rest) goes with data=split only"
        elif self.train_fraction and self.data != "split":
            wrong = f"train_fraction goes with data=split only, got data={self.data}"
        elif self.train_rows_per_symbol and not self.train_fraction:
            wrong = "train_rows_per_symbol goes with a train_fraction, the most that it may take"
        elif self.holdout_fraction and self.data != "fresh":
            wrong = f"holdout_fraction goes with data=fresh only, got data={self.data}"
        elif self.near_tie_fraction and self.data != "fresh":
            wrong = f"alike goes with data=fresh only, got data={self.data}"
        elif self.restart_after_steps and not self.stop_after_successes:
            wrong = "again goes with a stable: else a run that was right might begin anew"
        elif self.restart_after_steps and (levels or self.schedule in ("cosine", "linear")):
            what = "a curriculum" if levels else f"schedule={self.schedule}"
            wrong = f"again does not go with {what}, which is of the whole run: again=0"
        elif self.full_domain_steps and self.train_hook:
            wrong = f"full_domain_steps cannot be combined with train_hook={self.train_hook}"
        elif levels and self.data != "fresh":
            wrong = f"a curriculum goes with data=fresh only, got data={self.data}"
        if wrong:
            raise GlassformerError(f"recipe {self.name} — {wrong}")

    def override(self, settings: Mapping[str, Any], start: Model | None = None) -> "Recipe":
        """The recipe with fields set from values or their texts: {"lr": "0.01", "steps": 5}.

        `start`: the model whose weights a run begins with. Shape fields must equal its config.
        """
        if not isinstance(settings, Mapping):
            raise GlassformerError(
                f"recipe — expected fields and values, got {short_repr(settings)}"
            )
        values = {}
        for name, value in settings.items():
            known = recipe_option(name)
            values[name] = known.parse(value) if isinstance(value, str) else value
        for name in sorted(SHAPE_FIELDS & values.keys()):
            if start and values[name] != (its := getattr(start.config, name)):
                what = f"expected {its}, as in the start, got {short_repr(values[name])}"
                raise GlassformerError(f"{name}: {what}. Leave out {name}, or train without start")
        if values.get("data", self.data) != self.data:  # shares are of the way that they were for
            rows = self.test_rows or RECIPE_FIELDS["test_rows"].default
            shares = dict.fromkeys(
                (
                    "holdout_fraction",
                    "near_tie_fraction",
                    "train_fraction",
                    "train_rows_per_symbol",
                ),
                0.0,
            )
            values = {**shares, "curriculum": "", "test_rows": rows} | values
        if "train_rows" in values:  # who says how many does not mean a share of the recipe's
            values = {"train_fraction": 0.0, "train_rows_per_symbol": 0.0} | values
            if self.data in ("fresh", "all") and "data" not in values:
                way = "set data=draw or data=split with it"
                none = f"data={self.data} has no train_rows"
                raise GlassformerError(f"recipe {self.name} — {none}: {way}")
        return replace(self, **values)

    def non_default_fields(self) -> dict[str, Any]:
        """The fields that are not at their defaults."""
        values = {name: getattr(self, name) for name in RECIPE_FIELDS}
        return {
            name: value for name, value in values.items() if value != RECIPE_FIELDS[name].default
        }

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.non_default_fields().items())


RECIPE_FIELDS = {f.name: f for f in fields(Recipe)}
SHAPE_FIELDS = {f.name for f in fields(Config)} & {f.name for f in fields(Architecture)}


def recipe_option(name: str) -> Option:
    """A field of a recipe as an option: to parse and check texts and values."""
    if name not in RECIPE_FIELDS:
        raise unknown_name_error(
            "field of a recipe", name if isinstance(name, str) else short_repr(name), RECIPE_FIELDS
        )
    return _option(RECIPE_FIELDS[name])


def _option(f: Field[Any]) -> Option:
    return Option(f.name, type(f.default), f.default, f.metadata["choices"])


def _check_field(f: Field[Any], value: Any) -> Any:
    """The value of a field, if it may have it; lr=1 is 1.0."""
    least, most = f.metadata["least"], f.metadata["most"]
    good = _option(f).check(value)
    if isinstance(value, (int, float)) and not least <= value < math.inf:
        number = "a whole number" if isinstance(f.default, int) else "a finite number"
        raise GlassformerError(f"{f.name} must be {number} from {least}, got {short_repr(value)}")
    if isinstance(value, (int, float)) and value > most:
        raise GlassformerError(f"{f.name} must be at most {most:,}, got {short_repr(value)}")
    if isinstance(value, str) and (n := len(value)) > MAX_TEXT_CHARS:
        raise GlassformerError(
            f"{f.name} must have at most {MAX_TEXT_CHARS:,} characters, got {n:,}"
        )
    return good

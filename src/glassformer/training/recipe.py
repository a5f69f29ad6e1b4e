"""Recipes: all training settings besides the task and the parametrization, as plain data.

Each field has one short name everywhere: `recipe.lr`, `--set lr=0.01`, "lr" in JSON.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from ..core.model import ACTIVATIONS, MASKS, NORMS, POSITIONS, Config, Model
from ..core.weight_shapes import array_shapes, name_in_block, required_shapes
from ..registry import Between, Option
from ..utils import migrate
from ..utils.argcheck import validate_init, validate_method
from ..utils.errors import GlassformerError, short_repr, unknown_name_error
from ..utils.limits import MAX_SEED
from ..utils.results import Displayable
from .train_hooks import TRAIN_HOOKS

T = TypeVar("T")

OPTIONAL_PARAMS = {  # maps a word to optional arrays
    "norms": ("ln1.w", "ln1.b", "ln2.w", "ln2.b", "ln_final.w", "ln_final.b"),
    "gains": ("ln1.w", "ln2.w", "ln_final.w"),
    "mlp": ("mlp.b_in", "mlp.b_out"),
    "attention": ("attn.b_Q", "attn.b_K", "attn.b_V", "attn.b_O"),
    "gate": ("mlp.W_gate",),
    "qk": ("attn.q_norm.w", "attn.k_norm.w"),
    "final": ("ln_final.w",),
    "head": ("unembed.b_U",),
}
# Position encodings that are made by the parametrization of that name and not trained.
FIXED_POSITIONS = ("random-rotation",)
DATA_MODES = ("fresh", "split", "draw", "all")
SCHEDULES = ("constant", "cosine", "linear", "plateau")
INITS, OPTIMIZERS = ("uniform", "normal"), ("adamw", "muon")
MAX_STEPS = 10**9  # takes days for the smallest model
MAX_TEXT_CHARS = 1_000


def setting(
    default: T, help: str, choices: Iterable[str] = (), low: float = 0, high: float = math.inf
) -> T:
    """Return a recipe field with its default, help text and allowed values."""
    high = MAX_STEPS if type(default) is int and high == math.inf else high
    range_ = Between(low, high) if type(default) in (int, float) else None
    metadata = {"help": help, "choices": tuple(choices), "range": range_}
    return field(default=default, metadata=metadata)


@validate_init(check_kinds=False)
@dataclass(frozen=True)
class Recipe(Displayable):
    """All training settings. Change them with `replace(recipe, lr=0.01)` or `--set lr=0.01`."""

    name: str = setting("custom", "name in reports and tables")
    # ── model ──
    n_layers: int = setting(2, "number of blocks", high=1_000)
    n_heads: int = setting(1, "heads in a block", low=1, high=4_096)
    d_model: int = setting(32, "width of the residual stream", low=1, high=65_536)
    d_head: int = setting(0, "width of a head; 0: d_model / n_heads", high=65_536)
    d_mlp: int = setting(64, "neurons in a block; 0: no MLP", high=2**20)
    norm: str = setting("layer", "normalization: layer, rms or none", NORMS)
    norm_first: bool = setting(True, "normalize before a sublayer; false: after the residual sum")
    activation: str = setting("gelu", "activation function of the neurons", ACTIVATIONS)
    positions: str = setting("learned", "position encoding", (*POSITIONS, *FIXED_POSITIONS))
    base: float = setting(10_000.0, "base of rotary and sinusoidal frequencies")
    mask: str = setting("causal", "attention mask", MASKS)
    qk_norm: bool = setting(False, "normalize the q and k of every head, too")
    tied: bool = setting(True, "use the token embedding as the head")
    optional_params: str = setting(
        "norms mlp", f"optional arrays to train: {', '.join(OPTIONAL_PARAMS)}"
    )
    extra_positions: int = setting(0, "context length beyond the task's texts", high=2**20)
    train_hook: str = setting("", "ablation that no config can express", TRAIN_HOOKS)
    init: str = setting("uniform", "±1/sqrt(fan in); normal: deviation 1/sqrt(d_model)", INITS)
    embed_std: float = setting(1.0, "deviation of the embeddings with init=uniform")

    # ── rows ──
    data: str = setting(
        "fresh", "new rows every step; split: part of the domain; draw: may overlap", DATA_MODES
    )
    train_rows: int = setting(50_000, "training rows of split and draw", low=1, high=10**8)
    train_fraction: float = setting(0.0, "split: fraction of all rows; 0: train_rows", high=1)
    train_rows_per_symbol: float = setting(
        0.0, "rows per value of the largest number, up to train_fraction; 0: off", high=10**8
    )
    holdout_fraction: float = setting(0.0, "fresh: fraction held out for tests; 0: none", high=0.5)
    near_tie_fraction: float = setting(0.0, "fresh: fraction of rows with close numbers", high=1)
    test_rows: int = setting(10_000, "number of test rows; 0: all the rest of split", high=10**8)
    eval_screen_rows: int = setting(
        0, "test rows tested first; the rest only if these are right; 0: all", high=10**8
    )
    data_seed: int = setting(0, "seed of the split and of the test rows", high=MAX_SEED)
    batch: int = setting(512, "rows in a step; 0: all training rows", high=10**7)
    curriculum: str = setting("", '"3@0 6@2000": up to level 3 from step 0, 6 from step 2000, …')

    # ── loss ──
    loss: str = setting("answer", "loss on the answer, or on all positions", ("answer", "all"))
    focal: float = setting(0.0, "focal loss: tokens are weighted by (1 - p)^focal")
    # ── optimizer ──
    optimizer: str = setting("adamw", "muon: for blocks' matrices, adamw for the rest", OPTIMIZERS)
    lr: float = setting(0.001, "learning rate of adamw")
    muon_lr: float = setting(0.006, "learning rate of muon")
    momentum: float = setting(0.8, "Nesterov momentum of muon", high=1)
    beta1: float = setting(0.9, "decay of adamw's mean of the gradients", high=0.999999)
    beta2: float = setting(0.98, "decay of adamw's mean of their squares", high=0.999999)
    weight_decay: float = setting(0.01, "weight decay, times the learning rate")
    clip: float = setting(1.0, "maximum norm of the gradient; 0: no clipping")
    # ── learning rate schedule ──
    warmup: int = setting(0, "steps of linear warmup")
    schedule: str = setting(
        "constant", "plateau: constant until decay_when_…, then linear", SCHEDULES
    )
    decay_when_loss_below: float = setting(0.15, "plateau: start the decay at this smoothed loss")
    decay_when_accuracy_above: float = setting(
        0.0, "plateau: start the decay at this test accuracy; 0: by the loss", high=1
    )
    decay_from: int = setting(0, "linear: first step of the decay")
    decay_steps: int = setting(0, "linear and plateau: steps of the decay; 0: to the end")
    final_lr_fraction: float = setting(0.0, "fraction of the rate left at the end", high=1)
    # ── averages of gradients and weights over steps ──
    grokfast: float = setting(0.0, "amplification of slow gradients (Grokfast); 0: none")
    grokfast_decay: float = setting(0.98, "decay of the mean of the slow gradients", high=1)
    ema: float = setting(0.0, "decay of the averaged weights to save; 0: none", high=0.999999)
    # ── length of a run, its evaluations and its stopping conditions ──
    steps: int = setting(1_000, "maximum number of steps", low=1)
    evaluate_every: int = setting(100, "steps between evaluations", low=1)
    target_accuracy: float = setting(1.0, "test accuracy that counts as success")
    stop_after_successes: int = setting(0, "stop after this many successes in a row; 0: never")
    restart_after_steps: int = setting(0, "restart after this many steps without success; 0: never")
    full_domain_steps: int = setting(0, "more steps, on errors in the whole domain; 0: none")
    abort_after_steps: int = setting(0, "from this step, stop below abort_below_accuracy; 0: never")
    abort_below_accuracy: float = setting(0.0, "test accuracy below which a run is aborted")
    dtype: str = setting("float32", "float type of training", ("float32", "float64"))

    def __post_init__(self) -> None:
        """Check each field, then the combinations of fields."""
        for f in fields(self):
            try:
                value = _option(f).check(getattr(self, f.name))  # converts lr=1 to 1.0
                if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
                    wanted = f"at most {MAX_TEXT_CHARS:,} characters"
                    raise GlassformerError(f"{f.name} must have {wanted}, got {len(value):,}")
                object.__setattr__(self, f.name, value)
            except GlassformerError as e:
                is_text = isinstance(self.name, str)
                name = " ".join(self.name.split())[:60] if is_text else "custom"
                raise GlassformerError(f"recipe {name} — {e}") from None
        if not self.name.isprintable():
            got = short_repr(self.name)
            raise GlassformerError(f"recipe — name: expected one line of text, got {got}")
        if problem := next((text for bad, text in self._conflicts() if bad), ""):
            raise GlassformerError(f"recipe {self.name} — {problem}")

    def _conflicts(self) -> list[tuple[object, str]]:
        """Return pairs (whether some fields contradict each other, error message)."""
        levels, restarts, hook = self.levels(), self.restart_after_steps, self.train_hook
        unknown = [w for w in self.optional_params.split() if w not in OPTIONAL_PARAMS]
        whole_run = "a curriculum" if levels else f"schedule={self.schedule}"
        needed_data = {
            "train_fraction": "split", "holdout_fraction": "fresh", "near_tie_fraction": "fresh",
            "curriculum": "fresh",
        }  # fmt: skip
        return [
            (unknown, f"optional_params: expected words of {', '.join(OPTIONAL_PARAMS)}, "
             f"got {', '.join(unknown)}"),
            (self.data == "fresh" and not self.batch,
             "batch=0 (all training rows): not with data=fresh"),
            (self.data not in ("split", "all") and not self.test_rows,
             "test_rows=0 (all the rest) requires data=split"),
            *((getattr(self, name) and self.data != data,
               f"{name} requires data={data}, got data={self.data}")
              for name, data in needed_data.items()),
            (self.train_rows_per_symbol and not self.train_fraction,
             "train_rows_per_symbol requires train_fraction > 0, its upper limit"),
            (restarts and not self.stop_after_successes,
             "restart_after_steps requires stop_after_successes > 0; otherwise a successful run "
             "could be restarted"),
            (restarts and (levels or self.schedule in ("cosine", "linear")),
             f"restart_after_steps: not with {whole_run}, which spans the whole run. Set "
             "restart_after_steps=0"),
            (self.full_domain_steps and hook,
             f"full_domain_steps: not with train_hook={hook}, which the saved model does not have. "
             "Set full_domain_steps=0"),
        ]  # fmt: skip

    @validate_method
    def config(self, d_vocab: int, length: int) -> Config:
        """Return the config for a vocabulary size and a number of tokens per example."""
        chosen = {n: getattr(self, n) for n in SHAPE_FIELDS}
        if self.positions in FIXED_POSITIONS:  # in the model, a table like a learned one
            chosen["positions"] = "learned"
        return Config(d_vocab=d_vocab, n_ctx=length - 1 + self.extra_positions, **chosen)

    @validate_method
    def weight_shapes(self, config: Config) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the trained arrays by name, including optional arrays."""
        optional = {n for word in self.optional_params.split() for n in OPTIONAL_PARAMS[word]}
        absent: tuple[str, ...] = () if config.d_mlp else ("mlp.", "ln2.")
        absent += () if config.norm_first else ("ln_final.",)
        absent += ("ln",) if config.norm == "none" else ()
        names = {n for n in optional if not n.startswith(absent)} | set(required_shapes(config))
        return {n: s for n, s in array_shapes(config).items() if {n, name_in_block(n)} & names}

    @validate_method
    def training_rows(self, size: int, largest: int) -> int:
        """Return the number of training rows of data=split.

        The domain has `size` rows; `largest` is the largest entry of the radix.
        """
        if not self.train_fraction:
            return self.train_rows
        n = int(self.train_fraction * size)
        by_symbol = int(self.train_rows_per_symbol * min(largest, MAX_STEPS))
        return max(1, min(n, by_symbol) if self.train_rows_per_symbol else n)

    def levels(self) -> list[tuple[int, int]]:
        """Return the curriculum as pairs (first step, level), in order."""
        try:
            pairs = [tuple(map(int, part.split("@"))) for part in self.curriculum.split()]
            if any(not 1 <= n <= MAX_STEPS or not 0 <= step <= MAX_STEPS for n, step in pairs):
                raise ValueError
            return sorted((step, level) for level, step in pairs)
        except ValueError:
            wanted = "curriculum: expected level@step words such as '3@0 6@2000'"
            got = short_repr(self.curriculum)
            raise GlassformerError(f"recipe {self.name} — {wanted}, got {got}") from None

    def override(self, settings: Mapping[str, Any], start: Model | None = None) -> "Recipe":
        """Return the recipe with fields set from values or strings: {"lr": "0.01", "steps": 5}.

        Shape fields must equal the config of `start`, the model that provides the initial weights.
        """
        if not isinstance(settings, Mapping):
            got = short_repr(settings)
            raise GlassformerError(f"recipe — expected fields and values, got {got}")
        values = {}
        for name, value in settings.items():
            option = recipe_option(name)
            values[name] = option.parse(value) if isinstance(value, str) else option.check(value)
        for name in sorted(SHAPE_FIELDS & values.keys()):
            if start and values[name] != (expected := getattr(start.config, name)):
                wanted = f"expected {expected}, as in the initial model"
                hint = f"Leave out {name}, or train without an initial model"
                raise GlassformerError(f"{name}: {wanted}, got {short_repr(values[name])}. {hint}")
        if values.get("data", self.data) != self.data:  # Fractions apply to one kind of data only.
            rows = self.test_rows or RECIPE_FIELDS["test_rows"].default
            names = ("holdout_fraction", "near_tie_fraction", *TRAIN_FRACTIONS)
            values = {**dict.fromkeys(names, 0.0), "curriculum": "", "test_rows": rows} | values
        if "train_rows" in values:  # A number of rows replaces the fraction.
            values = dict.fromkeys(TRAIN_FRACTIONS, 0.0) | values
            if self.data in ("fresh", "all") and "data" not in values:
                problem = f"train_rows: not with data={self.data}"
                hint = "Set data=draw or data=split with it"
                raise GlassformerError(f"recipe {self.name} — {problem}. {hint}")
        return replace(self, **values)

    def non_default_fields(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        return {n: v for n, v in vars(self).items() if v != RECIPE_FIELDS[n].default}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.non_default_fields().items())


TRAIN_FRACTIONS = ("train_fraction", "train_rows_per_symbol")
RECIPE_FIELDS = {f.name: f for f in fields(Recipe)}
SHAPE_FIELDS = {f.name for f in fields(Config)} & RECIPE_FIELDS.keys()


def recipe_option(name: str) -> Option:
    """Return the Option of a recipe field, which parses strings and validates values."""
    if name not in RECIPE_FIELDS:
        text = name if isinstance(name, str) else short_repr(name)
        if new := migrate.RECIPE_FIELDS.get(text):
            raise GlassformerError(f"{text} — is called {new} now", code="not_found")
        raise unknown_name_error("field of a recipe", text, RECIPE_FIELDS)
    return _option(RECIPE_FIELDS[name])


def _option(f: Field[Any]) -> Option:
    return Option(f.name, type(f.default), f.default, f.metadata["choices"], f.metadata["range"])

"""Recipes: everything that a training run needs besides task and blueprint, in one frozen dataclass."""

import difflib
import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..errors import GlassformerError, shown
from ..limits import SEED
from ..model import Config
from ..registry import Option
from ..shapes import required, shapes
from .taps import TAPS

CHOICES = {
    "init": ("uniform", "normal"),
    "data": ("fresh", "split", "draw"),
    "loss": ("answer", "all"),
    "optimizer": ("adamw", "muon"),
    "schedule": ("constant", "cosine", "linear", "wait"),
    "dtype": ("float32", "float64"),
    "tap": tuple(TAPS),
}
EXTRAS = {  # word -> optional arrays
    "norms": ("ln1.w", "ln1.b", "ln2.w", "ln2.b", "ln_final.w", "ln_final.b"),
    "gains": ("ln1.w", "ln2.w", "ln_final.w"),
    "mlp": ("mlp.b_in", "mlp.b_out"),
    "attention": ("attn.b_Q", "attn.b_K", "attn.b_V", "attn.b_O"),
    "gate": ("mlp.W_gate",),
    "qk": ("attn.q_norm.w", "attn.k_norm.w"),
    "final": ("ln_final.w",),
    "head": ("unembed.b_U",),
}
LEAST = {"evaluate_every": 1, "train_rows": 1, "steps": 1}
STEPS = 10**9  # some days of the smallest model's
MOST = {
    "beta1": 0.999999, "beta2": 0.999999, "momentum": 1, "ema": 1, "grokfast_decay": 1, "last_lr": 1,
    "n_layers": 1_000, "n_heads": 4_096, "d_model": 65_536, "d_head": 65_536, "d_mlp": 2**20, "spare": 2**20,
    "train_rows": 10**8, "test_rows": 10**8, "batch": 10**7, "data_seed": SEED, "steps": STEPS, "warmup": STEPS,
    "decay_from": STEPS, "decay_steps": STEPS, "evaluate_every": STEPS, "stable": STEPS, "hopeless_after": STEPS,
}  # fmt: skip
LONGEST = 1_000  # characters of a text


@dataclass(frozen=True)
class Recipe:
    """How to train. Print it, save it, change it field by field: `replace(recipe, lr=0.01)`, `--set lr=0.01`."""

    name: str = "custom"
    # the model
    n_layers: int = 2
    n_heads: int = 1
    d_model: int = 32
    d_head: int = 0
    d_mlp: int = 64
    norm: str = "layer"
    norm_first: bool = True
    activation: str = "gelu"
    positions: str = "learned"
    base: float = 10_000.0
    mask: str = "causal"
    qk_norm: bool = False
    tied: bool = True
    extras: str = "norms mlp"  # words of EXTRAS: which optional arrays there are
    spare: int = 0  # positions beyond what the task needs
    tap: str = ""  # a name in TAPS: an ablation that no config can say
    init: str = "uniform"  # uniform: ±1/sqrt(fan in), embeddings normal; normal: all normal, /sqrt(d_model)
    embed_std: float = 1.0  # of uniform's embeddings
    # the data
    data: str = "fresh"  # fresh rows every step; split: a part of the whole domain; draw: with replacement, overlapping
    train_rows: int = 50_000  # of split and draw
    test_rows: int = 10_000  # 0: split tests on all the rest
    data_seed: int = 0
    batch: int = 512  # 0: all training rows
    curriculum: str = ""  # "3@0 6@2000 10@7000": up to level 3 from step 0, 6 from step 2000, …
    loss: str = "answer"  # on the answer, or on all positions
    focal: float = 0.0  # tokens weigh (1 - p)^focal
    # the optimiser
    optimizer: str = "adamw"  # muon: on the matrices inside the blocks, adamw on the rest
    lr: float = 0.001
    muon_lr: float = 0.006
    momentum: float = 0.8  # of muon, Nesterov's
    beta1: float = 0.9
    beta2: float = 0.98
    weight_decay: float = 0.01
    clip: float = 1.0  # largest norm of the gradient; 0: none
    warmup: int = 0
    schedule: str = "constant"  # wait: constant until the smoothed loss is below wait_loss, then linear
    wait_loss: float = 0.15
    decay_from: int = 0  # linear: the step at which it starts
    decay_steps: int = 0  # linear and wait: over so many steps; 0: to the end
    last_lr: float = 0.0  # what is left of the rate at the end, as a share
    grokfast: float = 0.0  # > 0: slow gradients are amplified so many times
    grokfast_decay: float = 0.98
    ema: float = 0.0  # > 0: an average of the weights is evaluated and kept
    # the run
    steps: int = 1_000
    evaluate_every: int = 100
    success: float = 1.0  # share of test rows right
    stable: int = 0  # stop after so many evaluations in a row at success; 0: never
    hopeless_after: int = 0  # a run below hopeless_at at an evaluation from this step on is stopped; 0: never
    hopeless_at: float = 0.0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            try:
                object.__setattr__(self, f.name, option(f.name).check(value))  # lr=1 is 1.0
                if isinstance(value, (int, float)) and not LEAST.get(f.name, 0) <= value < math.inf:
                    raise GlassformerError(f"{f.name} must be a finite number from {LEAST.get(f.name, 0)}, got {value}")
                if isinstance(value, (int, float)) and value > MOST.get(f.name, math.inf):
                    raise GlassformerError(f"{f.name} must be at most {MOST[f.name]:,}, got {value}")
                if isinstance(value, str) and len(value) > LONGEST:
                    raise GlassformerError(f"{f.name} must have at most {LONGEST:,} characters, got {len(value):,}")
            except GlassformerError as e:
                raise GlassformerError(f"recipe {str(self.name)[:60]} — {e}") from None
        levels, wrong = self.levels(), ""
        if unknown := [w for w in self.extras.split() if w not in EXTRAS]:
            wrong = f"extras: expected words of {', '.join(EXTRAS)}, got {unknown[0]}"
        elif self.data == "fresh" and not self.batch:
            wrong = "batch=0 (all training rows) does not go with data=fresh"
        elif self.data != "split" and not self.test_rows:
            wrong = "test_rows=0 (all the rest) goes with data=split only"
        elif levels and self.data != "fresh":
            wrong = f"a curriculum goes with data=fresh only, got data={self.data}"
        if wrong:
            raise GlassformerError(f"recipe {self.name} — {wrong}")

    def config(self, d_vocab: int, length: int) -> Config:
        """The model's config for a task of so many tokens and examples of so many."""
        names = {f.name for f in fields(Config)} & {f.name for f in fields(self)}
        return Config(d_vocab=d_vocab, n_ctx=length - 1 + self.spare, **{n: getattr(self, n) for n in names})

    def weight_shapes(self, config: Config) -> dict[str, tuple[int, ...]]:
        """Name -> shape of the arrays that are trained: the required ones and the recipe's extras."""
        extras = {n for word in self.extras.split() for n in EXTRAS[word]}
        if not config.d_mlp:
            extras = {n for n in extras if not n.startswith(("mlp.", "ln2."))}
        if not config.norm_first:
            extras = {n for n in extras if not n.startswith("ln_final.")}
        if config.norm == "none":
            extras = {n for n in extras if not n.startswith("ln")}
        must = required(config)
        return {n: s for n, s in shapes(config).items() if n in must or n in extras or n.split(".", 2)[-1] in extras}

    def levels(self) -> list[tuple[int, int]]:
        """The curriculum as (step, level), by step."""
        try:
            pairs = [tuple(map(int, part.split("@"))) for part in self.curriculum.split()]
            if any(not 1 <= level <= STEPS or not 0 <= step <= STEPS for level, step in pairs):
                raise ValueError
            return sorted((step, level) for level, step in pairs)
        except ValueError:
            wanted = f"expected level@step words such as '3@0 6@2000', got {shown(self.curriculum)}"
            raise GlassformerError(f"recipe {self.name} — curriculum: {wanted}") from None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def override(self, settings: dict[str, str]) -> "Recipe":
        """The recipe with fields set from texts: {"lr": "0.01"}."""
        values = {}
        for name, text in settings.items():
            values[name] = option(name).parse(text)
        return replace(self, **values)

    def __str__(self) -> str:
        return " ".join(f"{f.name}={value}" for f in fields(self) if (value := getattr(self, f.name)) != f.default)


def option(name: str) -> Option:
    """A field of a recipe as an option: to parse and check texts and values."""
    for f in fields(Recipe):
        if f.name == name:
            kind = {"int": int, "float": float, "bool": bool, "str": str}[getattr(f.type, "__name__", str(f.type))]
            return Option(name, kind, f.default, CHOICES.get(name, ()))
    name = name if len(name) <= 100 else name[:99] + "…"
    near = difflib.get_close_matches(name, [f.name for f in fields(Recipe)], 2, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(f.name for f in fields(Recipe))}"
    raise GlassformerError(f"{name} — no such field of a recipe; {hint}")

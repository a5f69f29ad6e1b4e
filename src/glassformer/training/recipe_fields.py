"""The fields of a recipe as keyword arguments, for type checkers and editors."""

from typing import TypedDict


class RecipeFields(TypedDict, total=False):
    """Keyword arguments of functions that take recipe fields.

    recipe.py defines the defaults and the meanings; a test compares the two lists of fields.
    """

    name: str
    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    d_mlp: int
    norm: str
    norm_first: bool
    activation: str
    positions: str
    base: float
    mask: str
    qk_norm: bool
    tied: bool
    optional_params: str
    extra_positions: int
    train_hook: str
    init: str
    embed_std: float
    data: str
    train_rows: int
    train_fraction: float
    train_rows_per_symbol: float
    holdout_fraction: float
    near_tie_fraction: float
    test_rows: int
    eval_screen_rows: int
    data_seed: int
    batch: int
    curriculum: str
    loss: str
    focal: float
    optimizer: str
    lr: float
    muon_lr: float
    momentum: float
    beta1: float
    beta2: float
    weight_decay: float
    clip: float
    warmup: int
    schedule: str
    decay_when_loss_below: float
    decay_when_accuracy_above: float
    decay_from: int
    decay_steps: int
    final_lr_fraction: float
    grokfast: float
    grokfast_decay: float
    ema: float
    steps: int
    evaluate_every: int
    target_accuracy: float
    stop_after_successes: int
    restart_after_steps: int
    full_domain_steps: int
    abort_after_steps: int
    abort_below_accuracy: float
    dtype: str

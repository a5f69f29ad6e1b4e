"""The fields of a recipe as keyword arguments: a type checker and an editor know them."""

from typing import TypedDict


class RecipeFields(TypedDict, total=False):
    """As in recipe.py, where each field has its default and its meaning; a test compares them."""

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
    extras: str
    spare: int
    tap: str
    init: str
    embed_std: float
    data: str
    train_rows: int
    train_share: float
    train_each: float
    held_share: float
    alike: float
    test_rows: int
    first_rows: int
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
    wait_loss: float
    wait_accuracy: float
    decay_from: int
    decay_steps: int
    last_lr: float
    grokfast: float
    grokfast_decay: float
    ema: float
    steps: int
    evaluate_every: int
    success: float
    stable: int
    again: int
    exact: int
    hopeless_after: int
    hopeless_at: float
    dtype: str

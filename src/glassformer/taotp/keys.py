"""Keys of the text language, with the corresponding weights and config fields.

The booklet has tok_emb pos_emb out_emb layers lnf, and in a layer Q K V P M1 b1 M2 b2 ln1 ln2. The
additional keys make every Model expressible: biases, gates, norms of q and k.
"""

from .values import Numbers

ArrayTable = dict[str, tuple[str, str]]  # key -> (name of the weight, axes)
TOP_ARRAYS = {
    "tok_emb": ("embed.W_E", "VD"),
    "pos_emb": ("pos_embed.W_pos", "TD"),
    "out_emb": ("unembed.W_U", "VD"),  # stored transposed, D x V
    "out_bias": ("unembed.b_U", "V"),
}
LAYER_ARRAYS = {
    "Q": ("attn.W_Q", "HDK"), "K": ("attn.W_K", "HDK"), "V": ("attn.W_V", "HDK"),
    "P": ("attn.W_O", "HDK"),  # stored transposed, H x K x D
    "bQ": ("attn.b_Q", "HK"), "bK": ("attn.b_K", "HK"), "bV": ("attn.b_V", "HK"),
    "bP": ("attn.b_O", "D"), "M1": ("mlp.W_in", "DF"), "b1": ("mlp.b_in", "F"),
    "gate": ("mlp.W_gate", "DF"), "b_gate": ("mlp.b_gate", "F"),
    "M2": ("mlp.W_out", "FD"), "b2": ("mlp.b_out", "D"),
}  # fmt: skip
TRANSPOSED = {"unembed.W_U", "attn.W_O"}
LAYER_NORMS = {
    "ln1": ("ln1", "D"), "ln2": ("ln2", "D"),
    "lnq": ("attn.q_norm", "K"), "lnk": ("attn.k_norm", "K"),
}  # fmt: skip
FINAL_NORM = {"lnf": ("ln_final", "D")}
NORM_PARAMETERS = {"gamma": ("w", 1.0), "beta": ("b", 0.0)}  # key -> (suffix, default)

SIZE_KEYS = {"block_size": "T", "n_heads": "H", "d_head": "K", "d_mlp": "F"}
AXIS_NAMES = {
    "V": "tokens", "D": "d_model", "T": "positions", "H": "heads", "K": "d_head", "F": "d_mlp",
}  # fmt: skip
# Config fields with their defaults. The booklet adds 1e-10 to the standard deviation. 1e-20 under
# the root has the same effect at zero, the only place where it matters.
CONFIG_DEFAULTS: dict[str, str | float | bool] = {
    "norm": "layer", "norm_first": True, "eps": 1e-20, "activation": "relu", "positions": "learned",
    "base": 10_000.0, "slope": 1.0, "mask": "causal", "scale": 0.0, "qk_norm": False,
}  # fmt: skip
DTYPES = ("float64", "float32", "float16")
OTHER_KEYS = ("tokens", "sep", "first", "task", "slots", "labels", "layers", "dtype")
PROGRAM_KEYS = [*TOP_ARRAYS, *FINAL_NORM, *SIZE_KEYS, *CONFIG_DEFAULTS, *OTHER_KEYS]


def transpose_if_needed(name: str, w: Numbers) -> Numbers:
    """Convert a weight between the booklet's axes and the model's, in either direction."""
    return w.swapaxes(-1, -2) if name in TRANSPOSED else w

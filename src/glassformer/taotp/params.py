"""The booklet's `params`: a transformer as a Python dict of arrays, read as a Model and back.

    >>> params = {"tok_emb": [[1, -1], [-1, 1]], "pos_emb": [[0, 0]], "layers": []}
    >>> from_params(params)([0]).argmax()
    0

The keys are those of the text language (keys.py); values are numbers, strings, nested lists or
arrays. Nothing in a dict is executed.
"""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from ..core.backend import to_numpy
from ..core.model import Model
from ..utils.errors import GlassformerError, value_error
from . import keys
from .build import ModelBuilder
from .values import MAX_DEPTH, Numbers, SourceText, TextNode, Value, to_array

Params = dict[str, Any]
NEGLIGIBLE_EPS = 1e-9  # the booklet adds 1e-10 to the standard deviation


class DictSource(SourceText):
    """Source of values in a dict. The location of a value is its path, such as params.layers[0].

    The offset of a node is the index of its path.
    """

    def __init__(self, name: str) -> None:
        super().__init__("", name)
        self.paths: list[str] = []

    def location(self, at: int) -> str:
        return self.paths[at]

    def node(self, value: Any, path: str, depth: int = 0) -> TextNode:
        """Convert a value to the form in which the text parser returns it."""
        self.paths.append(path)
        return TextNode(len(self.paths) - 1, self.convert(value, path, depth))

    def convert(self, value: Any, path: str, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise GlassformerError(f"{path} — expected at most {MAX_DEPTH} levels, got more")
        if isinstance(value, str | bool | np.bool_):
            return str(value)
        if isinstance(value, Mapping):
            if others := [key for key in value if not isinstance(key, str)]:
                raise value_error(path, "keys that are strings", others[0])
            return {key: self.node(x, f"{path}.{key}", depth + 1) for key, x in value.items()}
        is_list = isinstance(value, list | tuple)
        if is_list and any(isinstance(x, Mapping | str) for x in value):
            return [self.node(x, f"{path}[{i}]", depth + 1) for i, x in enumerate(value)]
        array = finite_array(value, path)
        if not array.ndim:
            return float(array)
        return array.tolist() if is_list and array.ndim == 1 else array


def from_params(params: Mapping[str, Any], name: str = "params") -> Model:
    """Return the Model that a dict of the booklet defines, in float64.

    The output embedding is tied if `out_emb` is missing or equal to `tok_emb` (Figures 8.1, 1.4).

    Args:
        params: Entries `tok_emb`, `pos_emb`, `out_emb`, `layers`, `lnf`, and any other key of the
            text language.
        name: Name of the dict in error messages.

    Raises:
        GlassformerError: With a line for each unknown key, value that is not a finite number, and
            size that does not fit.
    """
    source = DictSource(name)
    try:
        root = source.node(params, name)
        entries = root.value
        if not isinstance(entries, dict):
            raise value_error(name, "a dict with an entry tok_emb", params)
        tables = [entries[key] for key in ("tok_emb", "out_emb") if key in entries]
        if len(tables) == 2 and not any(isinstance(table.value, dict) for table in tables):
            tok_emb, out_emb = (to_array(source, table) for table in tables)
            if np.array_equal(tok_emb, out_emb):
                del entries["out_emb"]
        return ModelBuilder(source, root).model()
    except GlassformerError as error:
        raise GlassformerError(str(error), code="bad_argument") from None


def finite_array(value: Any, path: str) -> Numbers:
    """Return numbers, nested lists or an array as a float64 array of finite numbers."""
    try:
        array = np.asarray(to_numpy(value) if hasattr(value, "detach") else value)
        if array.dtype == object and all(isinstance(x, Real) for x in array.flat):
            array = array.astype(np.float64)  # integers beyond 64 bits
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise value_error(path, "numbers in rows of one length", value) from None
    if array.dtype.kind not in "fiu":
        raise value_error(path, "numbers, strings, lists or dicts", value)
    if not np.isfinite(array).all():
        raise value_error(path, "finite numbers", float(array[~np.isfinite(array)].flat[0]))
    return array.astype(np.float64)


def to_params(model: Model) -> Params:
    """Return a model as a dict that `from_params` reads as an equal transformer.

    A model of the booklet has the booklet's keys only, other models have more keys of the text
    language. As in the booklet, `out_emb` of a tied model is the same array as `tok_emb`. Names of
    tokens, slots and heads are not in the dict.
    """
    c, weights = model.config, {name: to_numpy(w) for name, w in model.weights.items()}
    params = base_params(c.d_vocab, c.n_ctx, c.d_model)
    _copy_arrays(weights, params, "", keys.TOP_ARRAYS, keys.FINAL_NORM)
    if c.tied:
        params["out_emb"] = params["tok_emb"]
    if "pos_embed.W_pos" not in weights:
        del params["pos_emb"]
        params["block_size"] = c.n_ctx
    for i in range(c.n_layers):
        params["layers"].append(base_layer(c.n_heads, c.d_model, c.d_mlp, c.d_head))
        path = f"blocks.{i}."
        _copy_arrays(weights, params["layers"][i], path, keys.LAYER_ARRAYS, keys.LAYER_NORMS)
    unused = ["eps"] * (c.eps <= NEGLIGIBLE_EPS) + ["activation"] * (not c.d_mlp)
    for key, default in keys.CONFIG_DEFAULTS.items():
        if (value := getattr(c, key)) != default and key not in unused:
            params[key] = value
    return params


def _copy_arrays(
    weights: Mapping[str, Numbers], entries: Params, path: str, arrays: keys.ArrayTable,
    norms: keys.ArrayTable,
) -> None:  # fmt: skip
    """Copy the weights below `path` to the entries of a dict."""
    for key, (name, _) in arrays.items():
        if path + name in weights:
            entries[key] = keys.transpose_if_needed(name, weights[path + name]).copy()
    for key, (name, _) in norms.items():
        for gain, (suffix, _) in keys.NORM_PARAMETERS.items():
            if (full := f"{path}{name}.{suffix}") in weights:
                entries.setdefault(key, {})[gain] = weights[full].copy()


def base_layer(n_heads: int, d_model: int, d_ff: int, d_head: int) -> Params:
    """Return the arrays of a layer that changes nothing, all 0 (Figure 1.3)."""
    heads = {key: np.zeros((n_heads, d_model, d_head)) for key in ("Q", "K", "V", "P")}
    mlp = {"M1": np.zeros((d_model, d_ff)), "b1": np.zeros(d_ff),
           "M2": np.zeros((d_ff, d_model)), "b2": np.zeros(d_model)}  # fmt: skip
    return heads | mlp | {name: {"gamma": 1.0, "beta": 0.0} for name in ("ln1", "ln2")}


def base_params(vocab_size: int, block_size: int, d_model: int) -> Params:
    """Return the parameters of a transformer without layers, all 0 (Figure 1.3)."""
    sizes = {"tok_emb": vocab_size, "out_emb": vocab_size, "pos_emb": block_size}
    embeddings = {name: np.zeros((n, d_model)) for name, n in sizes.items()}
    return embeddings | {"layers": [], "lnf": {"gamma": 1.0, "beta": 0.0}}

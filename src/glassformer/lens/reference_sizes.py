"""This model beside models that people know: the same parts, more of them."""

from dataclasses import dataclass

from ..core.model import Model
from ..core.param_count import count
from ..utils.results import Result


@dataclass(frozen=True)
class ModelSize(Result):
    """How large a model is."""

    name: str
    parameters: int
    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocabulary: int
    context: int


# Parameters are counted from the published shapes: GPT-2 small with its tied head; Llama 3 8B with
# 8 heads of 128 for keys and values, gated MLPs and a head of its own. Contexts are those of
# training: 1,024; 8,192 (3.1 has 131,072).
REFERENCE_MODELS = (
    ModelSize("GPT-2 small", 124_439_808, 12, 768, 12, 3_072, 50_257, 1_024),
    ModelSize("Llama 3 8B", 8_030_261_248, 32, 4_096, 32, 14_336, 128_256, 8_192),
)


def size_table(model: Model, name: str = "this model") -> list[ModelSize]:
    """A row for the model, and one for each of the known ones."""
    c = model.config
    total, heads = count(model).total, c.n_heads if c.n_layers else 0
    own = ModelSize(name, total, c.n_layers, c.d_model, heads, c.d_mlp, c.d_vocab, c.n_ctx)
    return [own, *REFERENCE_MODELS]

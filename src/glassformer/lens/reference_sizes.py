"""The size of a model compared with the sizes of well-known models."""

from dataclasses import dataclass

from ..core.model import Model
from ..core.param_count import count
from ..utils.results import Result


@dataclass(frozen=True)
class ModelSize(Result):
    """The number of parameters and the dimensions of one model."""

    name: str
    parameters: int
    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocabulary: int
    context: int


# Parameters follow from the published shapes: GPT-2 small with tied unembedding; Llama 3 8B with 8
# key-value heads, gated MLPs and an untied unembedding. Context lengths are the training lengths.
REFERENCE_MODELS = (
    ModelSize("GPT-2 small", 124_439_808, 12, 768, 12, 3_072, 50_257, 1_024),
    ModelSize("Llama 3 8B", 8_030_261_248, 32, 4_096, 32, 14_336, 128_256, 8_192),
)


def size_table(model: Model, name: str = "this model") -> list[ModelSize]:
    """Return the size of a model, followed by the sizes in REFERENCE_MODELS."""
    c = model.config
    total, heads = count(model).total, c.n_heads if c.n_layers else 0
    own = ModelSize(name, total, c.n_layers, c.d_model, heads, c.d_mlp, c.d_vocab, c.n_ctx)
    return [own, *REFERENCE_MODELS]

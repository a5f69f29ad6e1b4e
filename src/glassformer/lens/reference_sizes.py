"""The size of a model compared with the sizes of well-known models, with sources."""

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
    source: str = ""  # where the dimensions are published


@dataclass(frozen=True)
class SizeTable(Result):
    """The size of a model, followed by the sizes in REFERENCE_MODELS."""

    sizes: list[ModelSize]

    def __str__(self) -> str:
        own, *others = self.sizes
        ratios = (f"{s.name} has {s.parameters / own.parameters:,.0f} times" for s in others)
        return f"{own.name}: {own.parameters:,} parameters; {', '.join(ratios)} as many"


# The parameters follow from the published dimensions: GPT-2 small with a tied unembedding; Llama 3
# 8B with 8 key-value heads, gated MLPs and an untied unembedding.
REFERENCE_MODELS = (
    ModelSize(
        "GPT-2 small", 124_439_808, 12, 768, 12, 3_072, 50_257, 1_024,
        "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 2 (its "
        "117M is a known miscount); heads: the released hparams.json",
    ),
    ModelSize(
        "Llama 3 8B", 8_030_261_248, 32, 4_096, 32, 14_336, 128_256, 8_192,
        "The Llama 3 Herd of Models, arXiv:2407.21783, table 3; vocabulary and context: the "
        "released config.json. The context is that of the first training; Llama 3.1 extends it to "
        "131,072, often written as 128,000",
    ),
)  # fmt: skip


def size_table(model: Model, name: str = "this model") -> list[ModelSize]:
    """Return the size of a model, followed by the sizes in REFERENCE_MODELS."""
    c = model.config
    total, heads = count(model).total, c.n_heads if c.n_layers else 0
    own = ModelSize(name, total, c.n_layers, c.d_model, heads, c.d_mlp, c.d_vocab, c.n_ctx)
    return [own, *REFERENCE_MODELS]

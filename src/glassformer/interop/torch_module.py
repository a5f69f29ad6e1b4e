"""Export to PyTorch: a readable Python file that defines one model and needs only torch.

Small models have their weights in this file, larger models in a state dict in the same folder
(NAME.pt). Parameters have Glassformer's weight names, so `from_torch` can read the state dict.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core import backend
from ..core.model import Config, Model
from ..core.vocabulary import Vocabulary
from ..registry import bridge
from .common import import_library, run_python_file, torch_logits, write_python
from .torch_source import module_source

MAX_INLINE_NUMBERS = 2_000  # largest number of weights written into the Python file


@bridge("torch")
class TorchBridge:
    extra, needs, float32 = "torch", ("torch",), False
    files: frozenset[str] = frozenset()

    def check(self, model: Model) -> None:
        """Accept every model with finite weights."""

    def write(self, model: Model, path: Path) -> list[str]:
        is_inline = sum(w.size for w in model.weights.values()) <= MAX_INLINE_NUMBERS
        write_python(path, module_source(model, is_inline))
        if is_inline:
            return []
        torch = import_library("torch")
        data = io.BytesIO()  # torch's file errors contain no reason
        torch.save({n: torch.tensor(w) for n, w in model.weights.items()}, data)
        file = path.with_suffix(".pt")
        file.write_bytes(data.getvalue())
        return [f"the weights are in {file.name}"]

    def logits(self, path: Path, tokens: Any) -> Any:
        return torch_logits(run_python_file(path)["load"](), tokens)


def from_torch(
    state_dict: Mapping[str, Any], config: Config, vocabulary: Vocabulary | None = None,
    task: str = "",
) -> Model:  # fmt: skip
    """Create a Model from a state dict with Glassformer's names, such as a fine-tuned export.

    Args:
        state_dict: Name -> tensor or array.
        config: The model's config.
        vocabulary: The vocabulary. Defaults to numbers from 0.
        task: Ref of the model's task.
    """
    weights = {name: np.array(backend.to_numpy(w)) for name, w in state_dict.items()}
    vocabulary = Vocabulary.numbers(config.d_vocab) if vocabulary is None else vocabulary
    return Model(config, weights, vocabulary, task, provenance={"maker": "torch"})

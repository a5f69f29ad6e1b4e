"""To PyTorch: a readable Python file that needs torch alone, made for this very model.

A small model's numbers stand in the file; those of a larger one in a state dict beside it (NAME.pt,
read with weights_only=True). The module's parameters have our names, so its state dict is a Model's
weights: see `from_torch`.
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
from .common import check_finite, import_library, run_python_file, torch_logits, write_python
from .torch_source import module_source

MAX_INLINE_NUMBERS = 2_000  # up to so many numbers are written into the file


@bridge("torch")
class TorchBridge:
    extra, needs, float32 = "torch", ("torch",), False
    files: frozenset[str] = frozenset()

    def check(self, model: Model) -> None:
        check_finite("torch", model.weights)

    def write(self, model: Model, path: Path) -> list[str]:
        inside = sum(w.size for w in model.weights.values()) <= MAX_INLINE_NUMBERS
        write_python(path, module_source(model, inside))
        if not inside:
            torch = import_library("torch")
            numbers = io.BytesIO()  # torch itself would not say why it could not write
            torch.save({n: torch.tensor(w) for n, w in model.weights.items()}, numbers)
            path.with_suffix(".pt").write_bytes(numbers.getvalue())
        return [] if inside else [f"the numbers are beside it, in {path.with_suffix('.pt').name}"]

    def logits(self, path: Path, tokens: Any) -> Any:
        return torch_logits(run_python_file(path)["load"](), tokens)


def from_torch(
    state_dict: Mapping[str, Any], config: Config, vocabulary: Vocabulary | None = None,
    task: str = "",
) -> Model:  # fmt: skip
    """The Model of a state dict with our names: of an exported module that was trained on, say."""
    weights = {name: np.array(backend.to_numpy(w)) for name, w in state_dict.items()}
    vocabulary = Vocabulary.numbers(config.d_vocab) if vocabulary is None else vocabulary
    return Model(config, weights, vocabulary, task, provenance={"maker": "torch"})

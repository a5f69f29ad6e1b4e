"""What the views find, as JSON: arrays as lists, None for what JSON has no number for."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np


@dataclass(frozen=True, eq=False)
class Finding:
    """The base of results. As JSON: the fields that repr shows, and what `also` names."""

    also: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        names = [*(f.name for f in fields(self) if f.repr), *self.also]
        return {name: plain(getattr(self, name)) for name in names}


def plain(value: Any) -> Any:
    """Any result as JSON has it."""
    if hasattr(value, "to_json"):
        return plain(value.to_json())
    if is_dataclass(value):
        return plain(vars(value))
    if isinstance(value, Mapping):
        return {str(name): plain(v) for name, v in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not isfinite(value) else value

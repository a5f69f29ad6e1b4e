"""Schemas of the page's requests: plain data of limited size.

The functions of api.py check ranges of numbers and names.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from ..utils.limits import MAX_REF_CHARACTERS

MAX_FIELDS = 20  # of any object that is sent
MAX_SOURCE_CHARACTERS = 400_000  # characters of a text, as the text language has at most
MAX_EDITS, MAX_AXES = 20_000, 4
MAX_CHECKPOINT_CHARACTERS = 8 * 2**20  # characters of base64

Ref = Annotated[str, Field(max_length=MAX_REF_CHARACTERS)]
Index = Annotated[int, Field(ge=0, le=2**31 - 1)]
ShortName = Annotated[str, Field(max_length=200)]


class RequestModel(BaseModel):
    """An object of a request: its own fields, of their own types, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, given: Any) -> Any:
        """Each unknown field is an error of its own: not of a million of them."""
        if isinstance(given, dict) and len(given) > MAX_FIELDS:
            raise ValueError(f"expected at most {MAX_FIELDS} fields, got {len(given):,}")
        return given


class WeightEdit(RequestModel):
    """One number among the weights, set anew."""

    name: ShortName
    index: Annotated[list[Index], Field(min_length=1, max_length=MAX_AXES), FailFast()]
    value: float


class ModelSelector(RequestModel):
    """A model: by its ref, as a text that was typed, or as a checkpoint; and what was edited."""

    ref: Ref | None = None
    source: Annotated[str, Field(max_length=MAX_SOURCE_CHARACTERS)] | None = None
    kind: Literal["glass", "taotp"] = "glass"
    checkpoint: Annotated[str, Field(max_length=MAX_CHECKPOINT_CHARACTERS)] | None = None
    edits: Annotated[list[WeightEdit], Field(max_length=MAX_EDITS), FailFast()] = []

    @model_validator(mode="after")
    def _exactly_one(self) -> "ModelSelector":
        if sum(x is not None for x in (self.ref, self.source, self.checkpoint)) != 1:
            raise ValueError("expected one of ref, source and checkpoint")
        return self


class ShowRequest(ModelSelector):
    """A model to be looked at."""


class VerifyRequest(ModelSelector):
    """Is it right? Counted, or a sample of so many."""

    task: Ref = ""
    sample: int | None = None
    every: bool = False
    seed: int = 0


class ProveRequest(ModelSelector):
    """Is it right on all of its domain?"""

    task: Ref = ""
    method: ShortName = "auto"
    seed: int = 0


class TrainRequest(RequestModel):
    """A model to be trained: fields of the recipe as --set has them."""

    task: Ref
    recipe: ShortName = ""
    seed: int = 0
    settings: Annotated[
        dict[ShortName, Annotated[str, Field(max_length=1_000)] | int | float | bool],
        Field(max_length=MAX_FIELDS),
    ] = {}


class CheckRequest(RequestModel):
    """A solution of a puzzle."""

    level: ShortName
    text: Annotated[str, Field(max_length=MAX_SOURCE_CHARACTERS)]


def validation_message(error: Any) -> str:
    """What is wrong with a request, in one line that repeats nothing of it but names of fields."""
    if error.get("type") == "json_invalid":
        return f"request — not JSON, from character {error['loc'][-1]} on"
    where = ".".join(str(part)[:40] for part in error.get("loc", ())[1:][:6])
    what = str(error.get("msg", "cannot be read")).removeprefix("Value error, ")
    return f"{where or 'request'} — {what[:200]}"

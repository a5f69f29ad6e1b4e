"""Request schemas: plain data of limited size. The functions of api.py check the values."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from ..utils.limits import MAX_REF_CHARACTERS

MAX_FIELDS = 20  # number of fields per object
MAX_SOURCE_CHARACTERS = 400_000  # limit of the text language
MAX_EDITS, MAX_AXES = 20_000, 4
MAX_CHECKPOINT_CHARACTERS = 8 * 2**20  # length in base64

Ref = Annotated[str, Field(max_length=MAX_REF_CHARACTERS)]
Index = Annotated[int, Field(ge=0, le=2**31 - 1)]
ShortName = Annotated[str, Field(max_length=200)]


class RequestModel(BaseModel):
    """Base class of requests, with strict types and without extra fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, fields: Any) -> Any:
        """Raise one error for too many fields, because each unknown field would be an error."""
        if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
            raise ValueError(f"expected at most {MAX_FIELDS} fields, got {len(fields):,}")
        return fields


class WeightEdit(RequestModel):
    """A new value of one weight."""

    name: ShortName
    index: Annotated[list[Index], Field(min_length=1, max_length=MAX_AXES), FailFast()]
    value: float


class ModelSelector(RequestModel):
    """A model, given by its ref, source or checkpoint, and edits of its weights."""

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
    """Request to show a model."""


class VerifyRequest(ModelSelector):
    """Request to verify a model on every input or on a sample."""

    task: Ref = ""
    sample: int | None = None
    exhaustive: bool = False
    seed: int = 0


class ProveRequest(ModelSelector):
    """Request to prove a model on its whole domain."""

    task: Ref = ""
    method: ShortName = "auto"
    seed: int = 0


class TrainRequest(RequestModel):
    """Request to train a model. `settings` are recipe fields, as in --set."""

    task: Ref
    recipe: ShortName = ""
    seed: int = 0
    settings: Annotated[
        dict[ShortName, Annotated[str, Field(max_length=1_000)] | int | float | bool],
        Field(max_length=MAX_FIELDS),
    ] = {}


class PuzzleCheckRequest(RequestModel):
    """Request to judge the solution of a puzzle."""

    level: ShortName
    text: Annotated[str, Field(max_length=MAX_SOURCE_CHARACTERS)]


def validation_message(error: Any) -> str:
    """Return the first error of a request in one line, without the request's values."""
    if error.get("type") == "json_invalid":
        return f"request: not JSON at character {error['loc'][-1]} on"
    where = ".".join(str(part)[:40] for part in error.get("loc", ())[1:][:6])
    what = str(error.get("msg", "invalid value")).removeprefix("Value error, ")
    return f"{where or 'request'}: {what[:200]}"

"""Every view of a model at once, over the same inputs.

    found = inspect(model, task)
    found["heads"].kinds()              a view's own result
    found.skipped                       views that make no sense for this model, and why
    print(found)                        the gist of each

A view is a function of a Subject; what it returns is what that view returns anywhere else. To add one is to add a row
to VIEWS (and to SAYS, if it has something to say in a line or two).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import parts
from ..checkpoint import digest
from ..decoding import decode
from ..dust import number, percent
from ..errors import GlassformerError
from ..model import Model
from ..tasks.base import Task
from .attention import alignment, as_json, patterns, steps, trace
from .embeddings import position_embeddings, token_embeddings
from .heads import classify
from .interventions.ablate import ablations
from .interventions.patch import interchange, patch_heads, patch_positions
from .logits import answer_shares, lens_accuracy, logit_lens
from .modular.apart import take_apart
from .rank import ranks, truncation
from .stream import firing, norm_statistics, norms

INPUTS = 10_000  # by default, so many inputs are looked at
FEWER = 2_000  # for views that keep all activations


@dataclass(frozen=True)
class Subject:
    """What is looked at: a model, its task, and inputs."""

    model: Model
    task: Task
    rows: Any  # of the task: what averages are over
    example: Any  # the tokens of one input and its answer but the last, [T]: what views of a single input show
    boundary: int  # where its answer starts

    @cached_property
    def words(self) -> list[str]:
        return [self.model.vocabulary[int(t)] for t in self.example]

    @cached_property
    def tokens(self) -> Any:
        """Some of the rows as the model reads them, [B,T]; of the commonest length."""
        tokens, answer = self.task.batch(self.rows[:FEWER])
        ends = tokens.shape[1] - 1 - answer[:, ::-1].argmax(1)
        length = np.bincount(ends).argmax()
        return tokens[ends == length, :length]

    @cached_property
    def prompts(self) -> Any:
        """Of some of the rows, the inputs that are as long as the one shown, [B,boundary]."""
        tokens, answer = self.task.batch(self.rows[:FEWER])
        return tokens[answer.argmax(1) == self.boundary, : self.boundary]

    @cached_property
    def other(self) -> Any:
        """One of these to patch from: its answer starts in another way."""
        said = self.model(self.example[: self.boundary])[-1].argmax()
        for prompt in self.prompts:
            if self.model(prompt)[-1].argmax() != said:
                return prompt
        raise GlassformerError("patching — found no second input of the same length with another answer")


def _patching(s: Subject) -> dict[str, Any]:
    clean, corrupted = s.example[: s.boundary], s.other
    out: dict[str, Any] = {"stream": patch_positions(s.model, clean, corrupted)}
    return out | {"heads": patch_heads(s.model, clean, corrupted)}


def _interchange(s: Subject) -> list[Any]:
    if len(s.task.explanations) < 3:
        raise GlassformerError("interchange — is for tasks with more to tell apart, such as sums with the ones first")
    return [interchange(s.model, s.task, what, n=300) for what in parts.names(s.model)]


def _truncation(s: Subject) -> list[Any]:
    c = s.model.config
    if not c.n_layers:
        raise GlassformerError("truncation — this model has no layers, and so no matrix to cut")
    most = min(c.d_model, max(c.n_heads * c.d_head, c.d_mlp))
    cuts = sorted({0, *(2**i for i in range(10) if 2**i < most), 3 * most // 4, most})
    return truncation(s.model, s.task, cuts, s.rows[:FEWER])


def _neurons(s: Subject) -> list[Any]:
    c = s.model.config
    if not (layers := s.model.mlp_layers if c.d_mlp else []):
        raise GlassformerError("neurons — this model has no MLP")
    return [firing(s.model, s.task, s.rows[:FEWER], i) for i in layers]


VIEWS: dict[str, Callable[[Subject], Any]] = {
    "trace": lambda s: trace(s.model, s.example),
    "attention": lambda s: patterns(s.model, s.example[None])[:, 0],           # L H T S
    "steps": lambda s: steps(s.model, s.example, 0, 0),
    "alignment": lambda s: alignment(s.model, s.task, s.rows),
    "heads": lambda s: classify(s.model, s.task, s.rows),
    "tokens": lambda s: token_embeddings(s.model),
    "positions": lambda s: position_embeddings(s.model, s.boundary),
    "ranks": lambda s: ranks(s.model),
    "truncation": _truncation,
    "logit-lens": lambda s: logit_lens(s.model, s.example),
    "stopping": lambda s: lens_accuracy(s.model, s.task, s.rows),
    "shares": lambda s: answer_shares(s.model, s.task, s.rows),
    "stream": lambda s: {how: norms(s.model, s.tokens, how == "residual") for how in ("residual", "without")},
    "norms": lambda s: norm_statistics(s.model, s.tokens),
    "neurons": _neurons,
    "ablations": lambda s: list(ablations(s.model, s.task, rows=s.rows)),
    "patching": _patching,
    "interchange": _interchange,
    "modular": lambda s: take_apart(s.model, s.task),
}

SAYS: dict[str, Callable[[Any], str]] = {
    "alignment": lambda a: "\n".join(
        f"{parts.head(i, h)}: " + ", ".join(f"{percent(a.mean(role)[i, h])} on {role}" for role in a.roles)
        + f"; {percent(a.mean('aligned')[i, h])} on what the token is made of, {a.entropy[i, h].mean():.1f} bits"
        for i, h in np.ndindex(*a.entropy.shape[:2])
    ),
    "heads": str,
    "tokens": lambda e: f"first two components hold {percent(sum(e.pca.explained[:2]))} of the variance",
    "positions": lambda e: f"first two components hold {percent(sum(e.pca.explained[:2]))} of the variance",
    "ranks": lambda found: "\n".join(map(str, found)),
    "truncation": lambda cuts: ", ".join(f"rank {c.rank}: {c.accuracy:.1%}" for c in cuts),
    "stopping": lambda stops: ", ".join(f"after {part}: {s.accuracy:.1%}" for part, s in stops),
    "shares": lambda s: ", ".join(f"{part} {number(share, 2)}" for part, share in s.means()),
    "ablations": lambda rows: "\n".join(map(str, rows)),
    "interchange": lambda tests: "\n".join(map(str, tests)),
    "modular": str,
}


@dataclass(frozen=True)
class Inspection:
    """What every view found."""

    subject: Subject
    found: Mapping[str, Any]
    skipped: Mapping[str, str]  # view -> why it makes no sense here

    def __getitem__(self, view: str) -> Any:
        return self.found[view]

    def to_json(self) -> dict[str, Any]:
        s = self.subject
        named = {"model": digest(s.model), "task": s.task.ref, "inputs": len(s.rows), "shown": s.words}
        return named | {"views": {n: plain(v) for n, v in self.found.items()}, "skipped": dict(self.skipped)}

    def __str__(self) -> str:
        lines = []
        for view, found in self.found.items():
            if view in SAYS:
                lines += [view, *[f"  {line}" for line in SAYS[view](found).splitlines()]]
        return "\n".join([*lines, *[f"{view}: left out. {why}" for view, why in self.skipped.items()]])


def inspect(
    model: Model, task: Task, rows: Any = None, prompt: Any = None, only: Sequence[str] = (),
    seen: Callable[[str], None] = lambda view: None,
) -> Inspection:  # fmt: skip
    """All views, or `only` those. `prompt` [T]: the input to show alone; `seen` is told each view before it starts."""
    if unknown := [name for name in only if name not in VIEWS]:
        raise GlassformerError(f"view {unknown[0]!r} — expected one of {', '.join(VIEWS)}")
    task.require(model.vocabulary)
    if rows is None:
        rows = task.rows(0, task.size) if task.size <= INPUTS else task.sample(INPUTS, np.random.default_rng(0))
    rows = rows[task.defined(rows)]
    if not len(rows):
        raise GlassformerError(f"{task.ref} — expected at least one input to look at, got none")
    model = model.numpy()
    subject = Subject(model, task, rows, *_shown(model, task, rows, prompt))
    found, skipped = {}, {}
    for view in only or VIEWS:
        seen(view)
        try:
            with np.errstate(all="ignore"):  # a part taken away may leave nothing to divide by
                found[view] = VIEWS[view](subject)
        except GlassformerError as reason:
            skipped[view] = str(reason)
    return Inspection(subject, found, skipped)


def _shown(model: Model, task: Task, rows: Any, prompt: Any) -> tuple[Any, int]:
    """The tokens that views of a single input see, and where the answer starts in them."""
    if prompt is not None:
        said = decode(model, np.asarray(prompt), task.steps(prompt), stop=task.stop)
        return said[:-1], len(prompt)
    tokens, answer = task.batch(rows[-1:])
    at = np.nonzero(answer[0])[0]
    return tokens[0, : at[-1]], int(at[0])  # lists of several lengths end in padding


def plain(value: Any) -> Any:
    """Any result as JSON has it."""
    if hasattr(value, "to_json"):
        return plain(value.to_json())
    if hasattr(value, "__dataclass_fields__"):
        return plain(vars(value))
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, Mapping) else as_json(value)

"""What the report shows of single inputs: which, what the model said, what each head read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any

import numpy as np

from ..dust import number, ranked, sweep
from ..errors import GlassformerError
from ..lens.attention import patterns
from ..lens.explain import explain
from ..lens.logits import logit_lens
from ..model import Model
from ..refs import known_task
from ..runs import prompt, run
from ..runs import read as read_text
from ..tasks.base import Task

INPUTS = 8  # of a group, unless a person says which
STEPS = 64  # so many tokens are decoded at most
SHOWN = 128  # positions on a map; of a longer text, the last ones
DRAWN = 400  # rows among which inputs are looked for
TOP, READ = 5, 6  # tokens of a step and positions of a head that are listed


@dataclass
class Group:
    """Models that read the same texts."""

    texts: list[str]
    members: list[int] = field(default_factory=list)
    name: str = ""


def groups(models: Sequence[Model], inputs: Sequence[str] = ()) -> list[Group]:
    """Who reads what: all read given inputs; else who cannot read another's gets its own."""
    if inputs:
        for model, text in product(models, inputs):
            if problem := _refused(model, text):
                if len(models) == 1:
                    raise GlassformerError(problem)
                hint = "without inputs (--input) each model gets inputs of its own"
                raise GlassformerError(f"{name_of(model)}, {problem}; {hint}")
        return [Group(list(dict.fromkeys(inputs)), list(range(len(models))), name_of(models[0]))]
    found: list[Group] = []
    for i, model in enumerate(models):
        home = next((g for g in found if not any(_refused(model, text) for text in g.texts)), None)
        if home is None:
            found.append(home := Group(some_inputs(model), name=name_of(model)))
        home.members.append(i)
    return found


def name_of(model: Model) -> str:
    return model.task or str(model.provenance.get("ref", "model"))


def _refused(model: Model, text: str) -> str:
    """Why a model cannot read a text; "" if it can."""
    try:
        model.read(prompt(model, text))
    except GlassformerError as e:
        return str(e)
    return ""


def some_inputs(model: Model) -> list[str]:
    """A few inputs: those that people know, then one of each class of input, then any."""
    task = known_task(model)
    if not task:
        singles = [model.vocabulary[i] for i in range(min(len(model.vocabulary), INPUTS))]
        readable = [text for text in singles if not _refused(model, text)][:3]
        if not readable:
            problem = "knows no task; say what it reads (inputs=…, --input …)"
            raise GlassformerError(f"{name_of(model)} — {problem}")
        return readable
    known = dict.fromkeys([*task.known, *_of_each_class(task)])
    texts = [text for text in known if not _refused(model, text)]
    if not texts and not _refused(model, ""):
        return [""]
    if not texts:
        problem = "no input of it fits the model; say what it reads (inputs=…, --input …)"
        raise GlassformerError(f"{task.ref} — {problem}")
    return texts[:INPUTS]


def _of_each_class(task: Task) -> list[str]:
    """Texts of rows, the classes of input taking turns."""
    rows = np.concatenate([task.sample(DRAWN, np.random.default_rng(0)), task.edges()[:DRAWN]])
    rows = rows[task.defined(rows)]
    names = list(map(str, task.classes(rows)))
    turn = [names[:i].count(name) for i, name in enumerate(names)]  # how many of its class before
    each = zip(*task.batch(rows[np.argsort(turn, kind="stable")[: 4 * INPUTS]]), strict=True)
    return [task.vocabulary.decode(tokens[: int(answer.argmax())]) for tokens, answer in each]


# ── one input ──────────────────────────────────────────────────────────────────────────────────
def look(model: Model, text: str, parts: list[str]) -> dict[str, Any]:
    """All that the page says of one input. New names of parts that share are added to `parts`."""
    task = known_task(model)
    question, start = read_text(model, text)
    tokens = question + start
    room = max(1, model.config.n_ctx - len(tokens) + 1)
    wanted = task.steps(question) - len(start) if task else room
    try:
        result = run(model, text, steps=min(wanted, STEPS))
        written = range(len(tokens), len(result.tokens))
        steps = [_step(model, result.tokens, at, parts) for at in written]
    except GlassformerError as e:
        return {"text": text, "problem": str(e)}
    said, notes = result.tokens, []
    block = model.config.n_ctx
    read = said[:-1][-block:]
    T, cut = len(read), max(0, len(read) - SHOWN)
    first = len(said) - 1 - T + cut
    if len(said) - 1 > T:
        notes.append(f"The text outgrew the block of {block}: what is shown is the last window.")
    if cut:
        notes.append(f"Of {T} positions the last {SHOWN} are shown.")
    if wanted > STEPS and len(steps) == STEPS:
        notes.append(f"Decoding ends here after {STEPS} tokens.")
    seen = patterns(model, np.array([read]))[:, 0]  # L H T S
    # the task's map of what is needed, as far as this text goes
    roles = task.roles() if task and first == 0 else {}
    maps = [[[trimmed(row[cut:]) for row in head[cut:]] for head in layer] for layer in seen]
    return {
        "text": text, "output": result.output,
        "tokens": [model.vocabulary[t] for t in said[first:]], "first": first,
        "prompt": max(len(tokens) - first, 0), "steps": steps, "notes": notes, "patterns": maps,
        "roles": {n: np.argwhere(r[:T, :T]).tolist() for n, r in roles.items() if len(r) >= T},
    }  # fmt: skip


def _step(model: Model, tokens: list[int], at: int, parts: list[str]) -> dict[str, Any]:
    """Why the token at a position came: its rivals, what heads read, where the margin is from."""
    start = max(0, at - model.config.n_ctx)
    story = explain(model, tokens[start:at])
    shares = _named(story.shares)
    shares = dict(zip(shares, sweep(list(shares.values())), strict=True))
    parts += [name for name in shares if name not in parts]
    heads = [h for layer in story.layers for h in layer.heads]
    reads = [[[start + s, round(1000 * w)] for s, _, w in h.read[:READ]] for h in heads]
    return {
        "at": at, "token": model.vocabulary[tokens[at]], "margin": short(story.margin),
        "over": story.runner_up,
        "top": [[t, short(x), short(story.top[0][1] - x)] for t, x in story.top[:TOP]],
        "shares": [short(shares[name]) if name in shares else None for name in parts],
        "reads": [[h.layer, h.head, read] for h, read in zip(heads, reads, strict=True)],
        "stops": _stops(model, tokens[start:at]),
    }  # fmt: skip


def _stops(model: Model, tokens: list[int]) -> list[tuple[str, str, Any]]:
    """What would come next if the model stopped after each part: part, token, and its lead."""
    found = logit_lens(model, np.array([tokens]))
    out = []
    for part, logits in zip(found.parts[:-1], found.logits[:-1, 0, -1], strict=True):
        first, *second = (int(i) for i in ranked(logits)[:2])
        lead = logits[first] - logits[second[0] if second else first]
        out.append((part, found.vocabulary[first], short(lead)))
    return out


def _named(shares: list[tuple[str, float]]) -> dict[str, float]:
    """By name; where several parts have the same name, the later ones are numbered."""
    out: dict[str, float] = {}
    for name, x in shares:
        keys = (f"{name} ({again})" if again > 1 else name for again in count(1))
        out[next(key for key in keys if key not in out)] = x
    return out


# ── numbers, written short ─────────────────────────────────────────────────────────────────────
def short(x: Any) -> Any:
    """A number in four digits, None for what JSON has no word for; of an array, lists of them."""
    if np.ndim(x):
        return [short(each) for each in x]
    return float(number(x)) if np.isfinite(x) else None


def trimmed(row: Any) -> list[int]:
    """Shares in thousandths, without the zeros at the end: what a mask hides costs nothing."""
    whole = np.rint(1000 * np.nan_to_num(np.asarray(row, dtype=float))).astype(int)
    return [int(x) for x in np.trim_zeros(whole, "b")]

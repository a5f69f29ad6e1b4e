"""The examples that a page carries: edge cases and some of every class of input, as texts.

The page scores a model on them whenever something is silenced or edited. A text is written as a
person would type it, if the task reads it back as the same tokens; else the tokens are told too.
"""

import re
from typing import Any

import numpy as np

from ..compiler.task import SequenceTask
from ..core.model import Model
from ..tasks import (
    add_digit,
    add_mod,
    addition,
    base,
    lookup,
    message,
    multiplication,
    reverse,
    search,
    sort,
)
from ..tasks import modular_addition as modular
from ..tasks.base import Task
from ..tasks.token_layout import TOKEN
from ..utils.errors import GlassformerError

MAX_EXAMPLES = 2_000  # examples of a page
MAX_MULTIPLICATIONS = (
    600_000_000  # multiplications that all of them may take: about a second in a browser
)
MAX_CHARACTERS = 150_000  # of all texts
MIN_EXAMPLES = 40
SAMPLED_ROWS = 4 * MAX_EXAMPLES  # rows among which some of every class are looked for

# Class that defines `prompt` -> reader name in parse_input.js, and the attributes it needs.
INPUT_PARSERS: dict[type[Any], tuple[str, tuple[str, ...]]] = {
    base.Task: ("words", ()),
    addition.Addition: ("sum", ("digits",)),
    multiplication.Multiplication: ("product", ("digits",)),
    add_mod.AddMod: ("sum of one place", ("digits",)),
    add_digit.AddDigit: ("two digits", ()),
    modular.ModularAddition: ("modular", ("p", "operation", "plus")),
    lookup.Lookup: ("key", ("key_length",)),
    message.Message: ("message", ()),
    reverse.Reverse: ("reversed", ("length", "alphabet")),
    search.Search: ("found", ("prefix", "vocab", "bos")),
    sort.Sort: ("sorted", ("length", "shortest", "repeats")),
    sort.SortDigits: ("sorted by digits", ("length", "shortest", "repeats", "digits", "base")),
    SequenceTask: ("source", ()),
}
EXAMPLES_ONLY = "examples"  # a way of reading that only Python has: the page knows its examples


def input_parser(task: Task) -> dict[str, Any]:
    """How the page reads a text for this task."""
    told = {"mark": task.question_end, "steps": int(task.batch(task.rows(0, 1))[1].sum(1).max())}
    owner = _defining_class(task, "prompt")
    how, attributes = INPUT_PARSERS.get(owner, (EXAMPLES_ONLY, ()))
    own = {_defining_class(task, name) for name in ("read", "steps", "max_new_tokens", "answer")}
    if own <= {c for c in INPUT_PARSERS if issubclass(owner, c)}:
        told |= {name: getattr(task, name) for name in attributes}
    else:  # of these the page knows nothing
        how = EXAMPLES_ONLY
    if isinstance(task, message.Message):
        told["tokens"] = task.tokens.tolist()
    if isinstance(task, addition.Addition):
        told["steps"] = task.steps(())
    if isinstance(task, search.Search):
        told["steps"] = 1
    if isinstance(task, SequenceTask):
        commas = any("," in str(t) for t in task.program.tokens)
        told |= {"length": task.program.length, "commas": commas}
    return {"how": how, **told}


def _defining_class(task: Task, method: str) -> type[Any]:
    return next(c for c in type(task).__mro__ if method in vars(c))


def page_examples(model: Model, task: Task, max_examples: int = MAX_EXAMPLES) -> dict[str, Any]:
    """Texts, answers and classes, a list each; `tokens`: of those whose text says not all; `whole`:
    whether there are no other inputs.
    """
    room = min(
        MAX_MULTIPLICATIONS // multiplications_per_example(model, task),
        MAX_CHARACTERS // average_length(task),
    )
    n = min(max_examples, max(MIN_EXAMPLES, room))
    rows = choose_rows(task, n)
    if not len(rows):
        return {"texts": [], "answers": [], "classes": [], "names": [], "tokens": {}}
    tokens, answer = task.batch(rows)
    names, index = np.unique(np.array(task.classes(rows)).astype(str), return_inverse=True)
    texts, answers, told, always = [], [], {}, input_parser(task)["how"] == EXAMPLES_ONLY
    for i, (row, asked) in enumerate(zip(tokens, answer, strict=True)):
        prompt, said = row[: int(asked.argmax())].tolist(), row[asked].tolist()
        text = typeable_text(task, prompt)
        texts.append(text if text is not None else task.vocabulary.decode(prompt))
        answers.append(task.vocabulary.decode(said))
        if always or text is None or task.vocabulary.encode(answers[-1]) != said:
            told[str(i)] = [prompt, said]
    classes = {"classes": index.ravel().tolist(), "names": names.tolist()}
    whole = {"whole": task.size <= n}
    return {"texts": texts, "answers": answers, **classes, "tokens": told, **whole}


def choose_rows(task: Task, n: int) -> Any:
    """Rows of the domain: all, or edge cases and drawn ones, the classes of input taking turns."""
    if task.size <= n:
        rows = task.rows(0, task.size)
        return rows[task.defined(rows)]
    drawn = task.sample(max(SAMPLED_ROWS, n), np.random.default_rng(0))
    rows = np.concatenate([_evenly_spaced(task.edges(), n // 2), drawn])
    rows = rows[task.defined(rows)]
    # Each row once, edge cases first. np.unique would merge distinct numbers beyond int64.
    rows = np.array([*dict.fromkeys(map(tuple, rows.tolist()))], rows.dtype)
    names = np.array(task.classes(rows)).astype(str)
    turn, seen = np.zeros(len(rows), int), dict[str, int]()
    for i, name in enumerate(names.tolist()):  # how many of its class there are before it
        turn[i] = seen[name] = seen.get(name, -1) + 1
    return rows[np.sort(np.argsort(turn, kind="stable")[:n])]


def _evenly_spaced(rows: Any, n: int) -> Any:
    """At most n of the rows, from all over."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, n).astype(int))] if len(rows) > n else rows


def typeable_text(task: Task, prompt: list[int]) -> str | None:
    """What a person may type for a prompt; None if nothing that is tried means just that."""
    words = task.vocabulary
    begin = [prompt[1:]] * words[prompt[0]].startswith("<")  # <bos> need not be typed
    whole = [words.decode(tokens) for tokens in (*begin, prompt)]
    bare = [text.removesuffix(task.question_end) for text in whole]
    without_zeros = [re.sub(r"(?<![0-9])0+(?=[0-9])", "", text) for text in bare]
    for text in dict.fromkeys((*without_zeros, *bare, *whole, *_sum_texts(task, prompt), "")):
        try:
            if task.read(text) == (prompt, []):
                return text
        except GlassformerError:
            continue
    return None


def _sum_texts(task: Task, prompt: list[int]) -> list[str]:
    """a+b, of a sum in a fixed format: the smallest adders read digits, and no + among them."""
    form = task.layout() if isinstance(task, addition.Addition) else None
    if form is None or len(prompt) != form.first:
        return []
    digits = sorted(((name, -place, token) for (name, place), token
                     in zip(form.spots, prompt, strict=False) if name != TOKEN))  # fmt: skip
    numbers = ["".join(str(t) for n, _, t in digits if n == name) for name in "ab"]
    return ["+".join(number.lstrip("0") or "0" for number in numbers)]


def average_length(task: Task) -> int:
    """How many characters an example has, on the average."""
    tokens, answer = task.batch(task.sample_or_all(50))
    ends = tokens.shape[1] - answer[:, ::-1].argmax(1)
    texts = [task.vocabulary.decode(row[:end]) for row, end in zip(tokens, ends, strict=True)]
    return max(1, sum(map(len, texts)) // max(1, len(texts)))


def multiplications_per_example(model: Model, task: Task) -> int:
    """Roughly the multiplications that one example takes, softmax counted dearly."""
    c, T = model.config, task.batch(task.rows(0, 1))[0].shape[1]
    size = sum(int(np.prod(w.shape)) for w in model.weights.values())
    return int(T * (size + c.tied * c.d_vocab * c.d_model + 40 * c.n_layers * c.n_heads * T))

"""The examples of a page: edge cases and inputs of every class, with their answers.

The page scores a model on them after every edit. An example whose string does not parse to its
tokens is sent with its tokens.
"""

import re
from collections import Counter
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

MAX_EXAMPLES = 2_000
MAX_MULTIPLICATIONS = 600_000_000  # total for all examples, which takes about a second in a browser
MAX_CHARACTERS = 150_000  # total length of all example strings
MIN_EXAMPLES = 40
SAMPLED_ROWS = 4 * MAX_EXAMPLES  # number of candidates for examples of every class

# Class that defines `prompt` -> name of a parser in parse_input.js, and required attributes.
INPUT_PARSERS: dict[type[Any], tuple[str, tuple[str, ...]]] = {
    base.Task: ("words", ()),
    addition.Addition: ("addition", ("digits",)),
    multiplication.Multiplication: ("multiplication", ("digits",)),
    add_mod.AddMod: ("add-mod", ("digits",)),
    add_digit.AddDigit: ("add-digit", ()),
    modular.ModularAddition: ("modular", ("p", "operation", "plus")),
    lookup.Lookup: ("lookup", ("key_length",)),
    message.Message: ("message", ()),
    reverse.Reverse: ("reverse", ("length", "alphabet")),
    search.Search: ("search", ("prefix", "vocab", "bos")),
    sort.Sort: ("sort", ("length", "shortest", "repeats")),
    sort.SortDigits: ("sort-digits", ("length", "shortest", "repeats", "digits", "base")),
    SequenceTask: ("source", ()),
}
EXAMPLES_ONLY = "examples"  # parser for tasks whose parser exists only in Python


def input_parser(task: Task) -> dict[str, Any]:
    """Return the name and options of the page's input parser for a task."""
    answer_length = int(task.batch(task.rows(0, 1))[1].sum(1).max())
    parser = {"question_end": task.question_end, "steps": answer_length}
    owner = _defining_class(task, "prompt")
    name, attributes = INPUT_PARSERS.get(owner, (EXAMPLES_ONLY, ()))
    owners = {_defining_class(task, name) for name in ("read", "steps", "max_new_tokens", "answer")}
    if owners <= {c for c in INPUT_PARSERS if issubclass(owner, c)}:
        parser |= {name: getattr(task, name) for name in attributes}
    else:  # the task overrides the parser
        name = EXAMPLES_ONLY
    if isinstance(task, message.Message):
        parser["tokens"] = task.tokens.tolist()
    if isinstance(task, addition.Addition):
        parser["steps"] = task.steps(())
    if isinstance(task, search.Search):
        parser["steps"] = 1
    if isinstance(task, SequenceTask):
        commas = any("," in str(t) for t in task.program.tokens)
        parser |= {"length": task.program.length, "commas": commas}
    return {"name": name, **parser}


def _defining_class(task: Task, method: str) -> type[Any]:
    return next(c for c in type(task).__mro__ if method in vars(c))


def page_examples(model: Model, task: Task, max_examples: int = MAX_EXAMPLES) -> dict[str, Any]:
    """Return {texts, answers, classes, names, tokens, whole} of a page's examples.

    `classes` are indices of `names`. `tokens` is {index: [prompt, answer]} for examples whose
    strings do not parse to their tokens. `whole` is true if the examples cover the whole domain.
    """
    affordable = MAX_MULTIPLICATIONS // multiplications_per_example(model, task)
    limit = min(affordable, MAX_CHARACTERS // average_length(task))
    n = min(max_examples, max(MIN_EXAMPLES, limit))
    rows = choose_rows(task, n)
    if not len(rows):
        return {"texts": [], "answers": [], "classes": [], "names": [], "tokens": {}}
    tokens, answer = task.batch(rows)
    names, index = np.unique(np.array(task.classes(rows)).astype(str), return_inverse=True)
    texts, answers, token_pairs, always = [], [], {}, input_parser(task)["name"] == EXAMPLES_ONLY
    for i, (row, mask) in enumerate(zip(tokens, answer, strict=True)):
        prompt, answer_tokens = row[: int(mask.argmax())].tolist(), row[mask].tolist()
        text = typeable_text(task, prompt)
        texts.append(text if text is not None else task.vocabulary.decode(prompt))
        answers.append(task.vocabulary.decode(answer_tokens))
        if always or text is None or task.vocabulary.encode(answers[-1]) != answer_tokens:
            token_pairs[str(i)] = [prompt, answer_tokens]
    classes = {"classes": index.ravel().tolist(), "names": names.tolist()}
    whole = {"whole": task.size <= n}
    return {"texts": texts, "answers": answers, **classes, "tokens": token_pairs, **whole}


def choose_rows(task: Task, n: int) -> Any:
    """Return n rows of the domain: all rows, or edge cases and samples balanced over classes."""
    if task.size <= n:
        rows = task.rows(0, task.size)
        return rows[task.defined(rows)]
    drawn = task.sample(max(SAMPLED_ROWS, n), np.random.default_rng(0))
    rows = np.concatenate([_evenly_spaced(task.edges(), n // 2), drawn])
    rows = rows[task.defined(rows)]
    # Remove duplicate rows, edge cases first. np.unique would merge distinct numbers beyond int64.
    rows = np.array([*dict.fromkeys(map(tuple, rows.tolist()))], rows.dtype)
    return rows[np.sort(order_by_turns(task, rows)[:n])]


def order_by_turns(task: Task, rows: Any) -> Any:
    """Return indices that order rows so that their input classes alternate."""
    turns, counts = [], Counter[str]()
    for name in map(str, task.classes(rows)):
        turns.append(counts[name])
        counts[name] += 1
    return np.argsort(np.array(turns, int), kind="stable")


def _evenly_spaced(rows: Any, n: int) -> Any:
    return rows[np.unique(np.linspace(0, len(rows) - 1, n).astype(int))] if len(rows) > n else rows


def typeable_text(task: Task, prompt: list[int]) -> str | None:
    """Return a short string that the task parses to a prompt, or None without such a string."""
    vocabulary = task.vocabulary
    begin = [prompt[1:]] * vocabulary[prompt[0]].startswith("<")  # <bos> is optional
    whole = [vocabulary.decode(tokens) for tokens in (*begin, prompt)]
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
    """Return ["a+b"] for a prompt in a fixed format, which may lack a + token."""
    form = task.layout() if isinstance(task, addition.Addition) else None
    if form is None or len(prompt) != form.first:
        return []
    digits = sorted(((name, -place, token) for (name, place), token
                     in zip(form.spots, prompt, strict=False) if name != TOKEN))  # fmt: skip
    numbers = ["".join(str(t) for n, _, t in digits if n == name) for name in "ab"]
    return ["+".join(number.lstrip("0") or "0" for number in numbers)]


def average_length(task: Task) -> int:
    """Return the average number of characters per example of a task."""
    tokens, answer = task.batch(task.sample_or_all(50))
    ends = tokens.shape[1] - answer[:, ::-1].argmax(1)
    texts = [task.vocabulary.decode(row[:end]) for row, end in zip(tokens, ends, strict=True)]
    return max(1, sum(map(len, texts)) // max(1, len(texts)))


def multiplications_per_example(model: Model, task: Task) -> int:
    """Estimate the number of multiplications per example. Softmax has a high weight."""
    c, T = model.config, task.batch(task.rows(0, 1))[0].shape[1]
    size = sum(int(np.prod(w.shape)) for w in model.weights.values())
    return int(T * (size + c.tied * c.d_vocab * c.d_model + 40 * c.n_layers * c.n_heads * T))

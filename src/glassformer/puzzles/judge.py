"""Is a solution right, on every question of its level, and how small is it?

Weights as text (.taotp) are run on every question of the level; where there are more than can be
run, as for sums of ten digits, they are proved (see docs/proof.md) or they are not right. A source
(.glass) is interpreted on every question, and compiled: the certificate says that the model does
what the interpreter does on every text, so both together say that the model is right on every
question. Examples decide nothing. What is sent is read, never executed.

`judge` takes as long as it takes. judge_process.py runs it in a process of its own, with limits.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np

from .. import compiler, taotp
from ..compiler import Program
from ..compiler.frontend.parser import parse
from ..core.decoding import decode
from ..core.model import Model
from ..core.param_count import count
from ..proof import prove
from ..tasks.base import Rows, Task
from ..utils.errors import GlassformerError, short_repr
from ..utils.limits import format_count
from ..verification.evaluation import MAX_EXHAUSTIVE_ROWS, chunk_size, domain_chunks, row_margins
from ..verification.robust_eval import ClosestRows, RobustEvaluator
from .judgement import Judgment
from .level import Level
from .questions import PuzzleTask

MAX_SOLUTION_CHARACTERS = 100_000  # characters of a solution
MAX_LINE_CHARACTERS = 100  # characters of a line; a longer one counts as several
# of the text language: a comment, or a string, in which # is none
COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|#[^\n]*""")
INTERPRETER_CHUNK_ROWS = 4_096  # questions that the interpreter looks at together


def judge(level: Level, text: str) -> Judgment:
    """The judgement of a solution."""
    try:
        if not isinstance(text, str) or len(text) > MAX_SOLUTION_CHARACTERS:
            got = f"{len(text):,}" if isinstance(text, str) else short_repr(text)
            what = f"expected a text of at most {MAX_SOLUTION_CHARACTERS:,} characters, got {got}"
            raise GlassformerError(f"{level.file} — {what}")
        with np.errstate(all="ignore"):
            found = (_judge_weights if level.kind == "taotp" else _judge_source)(level, text)
    except GlassformerError as e:
        found = {"problem": str(e)}
    return Judgment(level.id, best=level.best, limits=level.limits, **found)


# ── weights as text ────────────────────────────────────────────────────────────────────────────
def _judge_weights(level: Level, text: str) -> dict[str, Any]:
    model, task = taotp.parse(text, level.file), level.task()
    task.require(model.vocabulary)
    found = (_prove_all_questions if task.size > MAX_EXHAUSTIVE_ROWS else _run_all_questions)(
        model, task
    )
    return found | ({"score": score(model, text, level.kind)} if found["right"] else {})


def _run_all_questions(model: Model, task: Task) -> dict[str, Any]:
    """Runs every question, in two orders of the same sums, and some one at a time."""
    trial, near, doubts = RobustEvaluator(model), ClosestRows(task), list[str]()

    def wrong(rows: Rows) -> tuple[Any, float]:
        looked = trial.evaluate(*task.batch(rows))
        near.add(rows, looked.margin_in_ties)
        doubts.append(looked.doubt)
        return ~(looked.margin > 0), float(min(looked.margin.min(), looked.second_margin.min()))

    found = _check_all_questions(
        task, chunk_size(model, task), wrong, partial(_decode_answer, model, task)
    )
    if found["right"]:
        doubts.append(trial.evaluate_one_by_one(*task.batch(near.select(trial.rng))).doubt)
        if doubt := next(filter(None, doubts), ""):
            raise GlassformerError(doubt)
    return found


def _decode_answer(model: Model, task: Task, question: list[int], n: int) -> str:
    try:
        got = decode(model, question, n, stop=task.stop)[len(question) :]
    except GlassformerError as e:  # a logit that is not finite
        return str(e)
    return task.vocabulary.decode(got)


def _prove_all_questions(model: Model, task: Task) -> dict[str, Any]:
    """Proves all questions at once, or finds one that is answered wrongly."""
    proof, every = prove(model, task), format_count(task.inputs)
    if proof.result == "unknown":
        raise GlassformerError(f"{task.ref} — neither proved nor refuted: {proof.reason}")
    if proof.holds:
        asked = f"proved for all {every} questions, {proof.cases:,} cases"
        return {"right": True, "checked": proof.cases, "margin": proof.margin, "asked": asked}
    assert proof.counterexample  # refuted
    row = _shrink_counterexample(model, task, proof.counterexample["row"])
    told = _describe_counterexample(task, row, partial(_decode_answer, model, task))
    asked = f"refuted, of {every} questions"
    found = {"right": False, "checked": 1, "wrong": 1, "asked": asked, "counterexample": told}
    return found | {"which": "a small one"}


def _shrink_counterexample(model: Model, task: Task, row: list[int]) -> list[int]:
    """A wrong row whose numbers cannot be made smaller one digit at a time, and still be wrong."""
    while True:
        tries = [
            [*row[:i], less, *row[i + 1 :]]
            for i, x in enumerate(row)
            for less in _smaller_numbers(x)
        ]
        if not tries:
            return row
        rows = np.array(tries, task.row_type)
        misses = ~(row_margins(model, *task.batch(rows)) > 0) & task.defined(rows)
        if not misses.any():
            return row
        row = min(rows[misses].tolist(), key=lambda r: (sum(r), r))


def _smaller_numbers(x: int) -> set[int]:
    """0, and x without one of its digits, or with 0 or one less for it."""
    powers = [10**k for k in range(len(str(x)))] if x else []
    digits = [(p, x // p % 10) for p in powers]
    without = {x // (10 * p) * p + x % p for p, _ in digits}
    return {0, *without, *(x - d * p for p, d in digits), *(x - p for p, d in digits if d)} - {x}


# ── a source ───────────────────────────────────────────────────────────────────────────────────
def _judge_source(level: Level, text: str) -> dict[str, Any]:
    program, task = compiler.read(text, level.file), level.task()
    _check_declarations(level, program)
    assert isinstance(task, PuzzleTask)  # levels of sources have truths

    def wrong(rows: Rows) -> tuple[Any, float]:
        return _wrong_questions(program, [task.questions[i] for i in rows[:, 0].tolist()]), np.inf

    def said(asked: list[int], n: int) -> str:
        out: list[int] = []
        try:
            while len(out) < n:
                out.append(int(compiler.emitted(program, np.array([asked + out]))[0, -1]))
        except GlassformerError as e:  # what the reader said can never be
            return str(e)
        return task.vocabulary.decode(out)

    found = _check_all_questions(task, INTERPRETER_CHUNK_ROWS, wrong, said)
    del found["margin"]
    if not found["right"]:
        return found
    made = compiler.compile(text, level.file)
    proved = f"compiled, and proved for every text ({made.certificate.cases:,} cases)"
    return found | {
        "asked": f"{found['asked']}; {proved}", "margin": made.certificate.margin,
        "score": score(made.model, text, level.kind),
    }  # fmt: skip


def _check_declarations(level: Level, program: Program) -> None:
    """Scores can be compared only of sources for the same texts."""
    for what, wanted, got in (
        ("tokens", list(level.tokens), [str(t) for t in program.tokens]),
        ("length", level.length, program.length),
        ("end", level.end or None, None if program.end is None else str(program.end)),
    ):
        if wanted != got:
            must = f"expected {what} as in the stub, {short_repr(wanted)}"
            raise GlassformerError(f"{level.file} — {must}, got {short_repr(got)}")


def _wrong_questions(program: Program, questions: list[tuple[list[int], list[int]]]) -> Any:
    """Which questions are not answered rightly; those of one length are looked at together."""
    lengths = np.array([len(text) + len(answer) for text, answer in questions])
    out = np.zeros(len(questions), bool)
    for length in np.unique(lengths):
        group = np.flatnonzero(lengths == length)
        out[group] = _wrong_of_one_length(program, [questions[i] for i in group])
    return out


def _wrong_of_one_length(
    program: Program, questions: list[tuple[list[int], list[int]]]
) -> list[bool]:
    """The same of texts of one length. The interpreter may refuse a text: then halves are tried."""
    texts = np.array([text + answer[:-1] for text, answer in questions])
    try:
        said = compiler.emitted(program, texts)
    except GlassformerError:
        if len(questions) == 1:
            return [True]
        half = len(questions) // 2
        return _wrong_of_one_length(program, questions[:half]) + _wrong_of_one_length(
            program, questions[half:]
        )
    return [
        said[i, len(text) - 1 :].tolist() != answer for i, (text, answer) in enumerate(questions)
    ]


# ── every question, and the score ──────────────────────────────────────────────────────────────
def _check_all_questions(
    task: Task, chunk: int, wrong: Callable[[Rows], tuple[Any, float]],
    answer_of: Callable[[list[int], int], str],
) -> dict[str, Any]:  # fmt: skip
    """Goes through all questions; `wrong` says which are, and the least lead of a right token. Of
    those that are wrong the shortest is kept, of equally short ones the first by its tokens.
    """
    checked = bad = 0
    smallest: tuple[int, list[int], list[int]] | None = None
    margin = np.inf
    for rows in domain_chunks(task, chunk):
        misses, low = wrong(rows)
        checked, bad, margin = checked + len(rows), bad + int(misses.sum()), min(margin, low)
        if misses.any():
            found = _smallest_question(task, rows[misses])
            smallest = found if smallest is None else min(smallest, found)
    every = "the one question" if checked == 1 else f"all {checked:,} questions"
    out: dict[str, Any] = {
        "right": not bad, "checked": checked, "wrong": bad, "margin": margin,
        "asked": every if not bad or checked == 1 else f"{bad:,} of {every}",
    }  # fmt: skip
    if smallest:
        out["counterexample"] = _describe_counterexample(task, smallest[2], answer_of)
    return out


def _smallest_question(task: Task, rows: Rows) -> tuple[int, list[int], list[int]]:
    """The length of the shortest question, its tokens, and its row; of several the first."""
    tokens, answer = task.batch(rows)
    first = answer.argmax(1)
    asked = np.where(np.arange(tokens.shape[1]) < first[:, None], tokens, -1)
    i = int(np.lexsort((*asked.T[::-1], first))[0])
    return int(first[i]), asked[i, : first[i]].tolist(), rows[i].tolist()


def _describe_counterexample(
    task: Task, row: list[int], answer_of: Callable[[list[int], int], str]
) -> dict[str, str]:
    """A counterexample in words."""
    tokens, answer = (x[0] for x in task.batch(np.array([row], task.row_type)))
    asked, right = tokens[: int(answer.argmax())], task.vocabulary.decode(tokens[answer])
    got = answer_of(asked.tolist(), int(answer.sum()))
    tie = " by a tie" if got == right else ""
    return {"input": task.vocabulary.decode(asked), "expected": right, "got": got + tie}


def score(model: Model, text: str, kind: str) -> dict[str, int]:
    """How large a solution is, on every axis."""
    found = count(model)
    return {
        "parameters": found.total, "strict": found.strict, "layers": model.config.n_layers,
        "bits": found.bits, "lines": count_lines(text, kind),
    }  # fmt: skip


def count_lines(text: str, kind: str) -> int:
    """Lines in which something stands but a comment; a long line is several, and so is one in which
    several statements begin. What a source says about itself on top is a comment.
    """
    if kind == "taotp":
        lines, begun = COMMENT.sub(lambda found: found[1] or "", text).splitlines(), Counter[int]()
    else:
        lines, begun = _source_lines(text)
    bare = [line.strip() for line in lines]
    return sum(max(-(-len(b) // MAX_LINE_CHARACTERS), begun[i]) for i, b in enumerate(bare, 1) if b)


def _source_lines(text: str) -> tuple[list[str], Counter[int]]:
    """The lines of a source without comments, and how many statements begin in each. As Python
    reads it: a # or a ; may stand in a string.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    tree, lines = parse(text, "source"), text.split("\n")
    begun = Counter(node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt))
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    out = [token for token in tokens if token.type == tokenize.COMMENT]
    if ast.get_docstring(tree, clean=False) is not None:
        begun[tree.body[0].lineno] -= 1
        top = (tokenize.COMMENT, tokenize.NL, tokenize.STRING)
        out += [t for t in takewhile(lambda t: t.type in top, tokens) if t.type == tokenize.STRING]
    for token in sorted(out, key=lambda token: token.start, reverse=True):
        (first, start), (last, end) = token.start, token.end
        head, tail = lines[first - 1][:start], lines[last - 1][end:]
        between = [""] * (last - first - 1)
        lines[first - 1 : last] = [head + tail] if first == last else [head, *between, tail]
    return lines, begun

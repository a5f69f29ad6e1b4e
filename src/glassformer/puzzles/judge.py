"""Judge a solution on every question of its level, and score its size.

Weights in the text language (.taotp) are run on every question. Levels with too many questions to
run, such as sums of ten digits, require a proof (docs/proof.md). A source (.glass) is interpreted
on every question and compiled. The certificate shows that the model agrees with the interpreter on
every input, so together they show that the model is right. Solutions are parsed, never executed.

`judge` has no time limit; judge_process.py runs it in another process with limits.
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

MAX_SOLUTION_CHARACTERS = 100_000
MAX_LINE_CHARACTERS = 100  # Longer lines count as several lines.
# Matches a comment of the text language, or a string, which may contain #.
COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|#[^\n]*""")
INTERPRETER_CHUNK_ROWS = 4_096


def judge(level: Level, text: str) -> Judgment:
    """Judge a solution of a level. An invalid solution is described in `problem`."""
    try:
        if not isinstance(text, str) or len(text) > MAX_SOLUTION_CHARACTERS:
            got = f"{len(text):,}" if isinstance(text, str) else short_repr(text)
            limit = f"expected a text of at most {MAX_SOLUTION_CHARACTERS:,} characters"
            raise GlassformerError(f"{level.file} — {limit}, got {got}")
        with np.errstate(all="ignore"):
            fields = (_judge_weights if level.kind == "taotp" else _judge_source)(level, text)
    except GlassformerError as e:
        fields = {"problem": str(e)}
    return Judgment(level.id, best=level.best, limits=level.limits, **fields)


# ── weights as text ────────────────────────────────────────────────────────────────────────────
def _judge_weights(level: Level, text: str) -> dict[str, Any]:
    model, task = taotp.parse(text, level.file), level.task()
    task.require(model.vocabulary)
    check = _prove_all_questions if task.size > MAX_EXHAUSTIVE_ROWS else _run_all_questions
    fields = check(model, task)
    return fields | ({"score": score(model, text, level.kind)} if fields["right"] else {})


def _run_all_questions(model: Model, task: Task) -> dict[str, Any]:
    """Run every question in two summation orders, and the closest questions one at a time."""
    evaluator, closest, doubts = RobustEvaluator(model), ClosestRows(task), list[str]()

    def wrong(rows: Rows) -> tuple[Any, float]:
        result = evaluator.evaluate(*task.batch(rows))
        closest.add(rows, result.margin_in_ties)
        doubts.append(result.doubt)
        return ~(result.margin > 0), float(min(result.margin.min(), result.second_margin.min()))

    fields = _check_all_questions(
        task, chunk_size(model, task), wrong, partial(_decode_answer, model, task)
    )
    if fields["right"]:
        doubts.append(
            evaluator.evaluate_one_by_one(*task.batch(closest.select(evaluator.rng))).doubt
        )
        if doubt := next(filter(None, doubts), ""):
            raise GlassformerError(doubt)
    return fields


def _decode_answer(model: Model, task: Task, question: list[int], n: int) -> str:
    try:
        got = decode(model, question, n, stop=task.stop)[len(question) :]
    except GlassformerError as e:  # A logit is not finite.
        return str(e)
    return task.vocabulary.decode(got)


def _prove_all_questions(model: Model, task: Task) -> dict[str, Any]:
    """Prove that all questions are answered right, or return a counterexample."""
    proof, every = prove(model, task), format_count(task.inputs)
    if proof.result == "unknown":
        raise GlassformerError(f"{task.ref} — neither proved nor refuted: {proof.reason}")
    if proof.holds:
        coverage = f"proved for all {every} questions, {proof.cases:,} cases"
        return {"right": True, "checked": proof.cases, "margin": proof.margin, "coverage": coverage}
    assert proof.counterexample  # The proof was refuted.
    row = _shrink_counterexample(model, task, proof.counterexample["row"])
    example = _describe_counterexample(task, row, partial(_decode_answer, model, task))
    coverage = f"refuted, of {every} questions"
    return {
        "right": False,
        "checked": 1,
        "wrong": 1,
        "coverage": coverage,
        "counterexample": example,
        "which": "a small one",
    }


def _shrink_counterexample(model: Model, task: Task, row: list[int]) -> list[int]:
    """Return a smaller wrong row, made by shrinking its numbers one digit at a time."""
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
    """Return 0 and all variants of x with one digit removed, set to 0 or decreased by 1."""
    powers = [10**k for k in range(len(str(x)))] if x else []
    digits = [(p, x // p % 10) for p in powers]
    without = {x // (10 * p) * p + x % p for p, _ in digits}
    return {0, *without, *(x - d * p for p, d in digits), *(x - p for p, d in digits if d)} - {x}


# ── a source ───────────────────────────────────────────────────────────────────────────────────
def _judge_source(level: Level, text: str) -> dict[str, Any]:
    program, task = compiler.read(text, level.file), level.task()
    _check_declarations(level, program)
    assert isinstance(task, PuzzleTask)  # All levels of sources are PuzzleTasks.

    def wrong(rows: Rows) -> tuple[Any, float]:
        return _wrong_questions(program, [task.questions[i] for i in rows[:, 0].tolist()]), np.inf

    def answer_of(question: list[int], n: int) -> str:
        out: list[int] = []
        try:
            while len(out) < n:
                out.append(int(compiler.emitted(program, np.array([question + out]))[0, -1]))
        except GlassformerError as e:  # The source excludes this output.
            return str(e)
        return task.vocabulary.decode(out)

    fields = _check_all_questions(task, INTERPRETER_CHUNK_ROWS, wrong, answer_of)
    del fields["margin"]
    if not fields["right"]:
        return fields
    compiled = compiler.compile(text, level.file)
    proved = f"compiled, and proved for every text ({compiled.certificate.cases:,} cases)"
    return fields | {
        "coverage": f"{fields['coverage']}; {proved}",
        "margin": compiled.certificate.margin,
        "score": score(compiled.model, text, level.kind),
    }


def _check_declarations(level: Level, program: Program) -> None:
    """Raise an error if a source has other tokens or another length or end than the stub.

    The scores of such sources could not be compared.
    """
    for label, wanted, got in (
        ("tokens", list(level.tokens), [str(t) for t in program.tokens]),
        ("length", level.length, program.length),
        ("end", level.end or None, None if program.end is None else str(program.end)),
    ):
        if wanted != got:
            must = f"expected {label} as in the stub, {short_repr(wanted)}"
            raise GlassformerError(f"{level.file} — {must}, got {short_repr(got)}")


def _wrong_questions(program: Program, questions: list[tuple[list[int], list[int]]]) -> Any:
    """Return a bool mask of the wrongly answered questions, checked in batches of one length."""
    lengths = np.array([len(text) + len(answer) for text, answer in questions])
    out = np.zeros(len(questions), bool)
    for length in np.unique(lengths):
        group = np.flatnonzero(lengths == length)
        out[group] = _wrong_of_one_length(program, [questions[i] for i in group])
    return out


def _wrong_of_one_length(
    program: Program, questions: list[tuple[list[int], list[int]]]
) -> list[bool]:
    """Return whether each of some questions of one length is answered wrongly.

    If the interpreter raises an error for the batch, its halves are tried.
    """
    texts = np.array([text + answer[:-1] for text, answer in questions])
    try:
        output = compiler.emitted(program, texts)
    except GlassformerError:
        if len(questions) == 1:
            return [True]
        half = len(questions) // 2
        return _wrong_of_one_length(program, questions[:half]) + _wrong_of_one_length(
            program, questions[half:]
        )
    return [
        output[i, len(text) - 1 :].tolist() != answer for i, (text, answer) in enumerate(questions)
    ]


# ── every question, and the score ──────────────────────────────────────────────────────────────
def _check_all_questions(
    task: Task,
    chunk: int,
    wrong: Callable[[Rows], tuple[Any, float]],
    answer_of: Callable[[list[int], int], str],
) -> dict[str, Any]:
    """Check all questions of a level.

    The counterexample is the shortest wrong question; among equally short questions, it is the
    first by its tokens.

    Args:
        task: The task of the level.
        chunk: Number of rows per batch.
        wrong: Function that returns a mask of wrong rows and their minimum margin.
        answer_of: Function that returns the solution's answer to a question as a string.
    """
    checked = bad = 0
    smallest: tuple[int, list[int], list[int]] | None = None
    margin = np.inf
    for rows in domain_chunks(task, chunk):
        misses, low = wrong(rows)
        checked, bad, margin = checked + len(rows), bad + int(misses.sum()), min(margin, low)
        if misses.any():
            candidate = _smallest_question(task, rows[misses])
            smallest = candidate if smallest is None else min(smallest, candidate)
    every = "the one question" if checked == 1 else f"all {checked:,} questions"
    out: dict[str, Any] = {
        "right": not bad, "checked": checked, "wrong": bad, "margin": margin,
        "coverage": every if not bad or checked == 1 else f"{bad:,} of {every}",
    }  # fmt: skip
    if smallest:
        out["counterexample"] = _describe_counterexample(task, smallest[2], answer_of)
    return out


def _smallest_question(task: Task, rows: Rows) -> tuple[int, list[int], list[int]]:
    """Return the length, the tokens and the row of the shortest question."""
    tokens, answer = task.batch(rows)
    first = answer.argmax(1)
    questions = np.where(np.arange(tokens.shape[1]) < first[:, None], tokens, -1)
    i = int(np.lexsort((*questions.T[::-1], first))[0])
    return int(first[i]), questions[i, : first[i]].tolist(), rows[i].tolist()


def _describe_counterexample(
    task: Task, row: list[int], answer_of: Callable[[list[int], int], str]
) -> dict[str, str]:
    """Return the input, the expected answer and the actual answer as strings."""
    tokens, answer = (x[0] for x in task.batch(np.array([row], task.row_type)))
    question, right = tokens[: int(answer.argmax())], task.vocabulary.decode(tokens[answer])
    got = answer_of(question.tolist(), int(answer.sum()))
    tie = " by a tie" if got == right else ""
    return {"input": task.vocabulary.decode(question), "expected": right, "got": got + tie}


def score(model: Model, text: str, kind: str) -> dict[str, int]:
    """Return the size of a solution on every axis of the score."""
    counts = count(model)
    return {
        "parameters": counts.total, "strict": counts.strict, "layers": model.config.n_layers,
        "bits": counts.bits, "lines": count_lines(text, kind),
    }  # fmt: skip


def count_lines(text: str, kind: str) -> int:
    """Count the lines without comments and docstring.

    Long lines and lines with several statements count several times.
    """
    if kind == "taotp":
        lines, begun = COMMENT.sub(lambda match: match[1] or "", text).splitlines(), Counter[int]()
    else:
        lines, begun = _source_lines(text)
    bare = [line.strip() for line in lines]
    return sum(max(-(-len(b) // MAX_LINE_CHARACTERS), begun[i]) for i, b in enumerate(bare, 1) if b)


def _source_lines(text: str) -> tuple[list[str], Counter[int]]:
    """Return the lines of a source without comments, and the number of statements of each line.

    Python's tokenizer splits the source, because a string may contain # or ;.
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

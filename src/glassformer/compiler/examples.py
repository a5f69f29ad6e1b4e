"""The examples of a source, held against what it means."""

from collections.abc import Iterator

import numpy as np

from ..utils.errors import GlassformerError
from .interpreter import emitted, run
from .ir import Program
from .literals import format_element

MAX_EXAMPLE_WORK = 2 * 10**9  # the most: values times positions by positions, of all examples


def failing_examples(program: Program) -> Iterator[tuple[str, str]]:
    """(text, what is wrong with it) of each example that does not come out."""
    number = {str(t): i for i, t in enumerate(program.tokens)}
    left = MAX_EXAMPLE_WORK / len(program.values)
    for text, answer in program.examples.items():
        words, told = text.split(), answer.split()
        left -= (len(words) + len(told)) ** 2
        if left < 0:
            yield text, "cannot be checked: these are too many examples, or too long"
            return
        if odd := [w for w in (*words, *told) if w not in number]:
            yield text, f"has {format_element(odd[0])}, which is no token"
        elif not 1 <= len(words) <= program.length:
            yield text, f"has {len(words)} tokens, and a text has from 1 to {program.length}"
        else:
            try:
                if not _produces(program, [number[w] for w in words], [number[w] for w in told]):
                    said = run(program, [number[w] for w in words])
                    gives = " ".join(str(program.tokens[t]) for t in said)
                    yield text, f"gives {gives}, not {answer or 'nothing'}"
            except GlassformerError as e:
                yield text, str(e)


def _produces(program: Program, text: list[int], answer: list[int]) -> bool:
    """Whether a program writes an answer, and no more, in one go."""
    whole = [*text, *answer[:-1]]
    if not answer or len(whole) > program.length:
        return False
    said = emitted(program, np.array([whole]))[0, len(text) - 1 :].tolist()
    one = program.end is None and len(answer) == 1
    ended = program.end is not None and program.tokens[answer[-1]] == program.end
    full = program.end is not None and len(whole) == program.length
    before = program.end is None or all(program.tokens[t] != program.end for t in answer[:-1])
    return said == answer and before and (one or ended or full)

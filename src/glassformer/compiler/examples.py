"""Check the examples of a source against its program."""

from collections.abc import Iterator

import numpy as np

from ..utils.errors import GlassformerError
from .interpreter import emitted, run
from .ir import Program
from .literals import format_element

MAX_EXAMPLE_WORK = 2 * 10**9  # limit for values · positions², summed over all examples


def failing_examples(program: Program) -> Iterator[tuple[str, str]]:
    """Yield the input and the error of each example that the program does not reproduce."""
    number = {str(t): i for i, t in enumerate(program.tokens)}
    remaining = MAX_EXAMPLE_WORK / len(program.values)
    for text, answer in program.examples.items():
        words, answer_words = text.split(), answer.split()
        remaining -= (len(words) + len(answer_words)) ** 2
        if remaining < 0:
            yield text, "cannot be checked: the examples are too many or too long"
            return
        if unknown := [w for w in (*words, *answer_words) if w not in number]:
            yield text, f"has {format_element(unknown[0])}, which is not a token"
        elif not 1 <= len(words) <= program.length:
            yield text, f"has {len(words)} tokens; expected 1 to {program.length}"
        else:
            prompt, expected = ([number[w] for w in ws] for ws in (words, answer_words))
            try:
                if not _produces(program, prompt, expected):
                    output = " ".join(str(program.tokens[t]) for t in run(program, prompt))
                    yield text, f"gives {output}, not {answer or 'nothing'}"
            except GlassformerError as e:
                yield text, str(e)


def _produces(program: Program, text: list[int], answer: list[int]) -> bool:
    """Return whether the program writes exactly `answer` after the input `text`."""
    whole = [*text, *answer[:-1]]
    if not answer or len(whole) > program.length:
        return False
    if emitted(program, np.array([whole]))[0, len(text) - 1 :].tolist() != answer:
        return False
    if program.end is None:
        return len(answer) == 1
    is_end = [program.tokens[t] == program.end for t in answer]
    return not any(is_end[:-1]) and (is_end[-1] or len(whole) == program.length)

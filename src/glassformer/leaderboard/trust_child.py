"""Script of a submission's process. The guard starts it; it imports the standard library only.

It loads the file as the board does, and answers in JSON lines on a copy of the original stdout.
Output printed by the submission is discarded. trust.py validates every line.
"""

import importlib.util
import json
import math
import operator
import os
import sys

MAX_TEXT_CHARACTERS = 200  # characters of a text
MAX_ITEMS = 20  # items of a list, or of metadata
MAX_ANSWER_DIGITS = 30  # of an answer
TOO_LARGE = f"a number of more than {MAX_ANSWER_DIGITS} digits"


def main(path: str, cgroup: bool) -> None:
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def say(**line: object) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    def fail(why: str) -> None:
        say(event="failed", why=why)

    # No code of the submission has run yet. The reply contains the pairs.
    say(event="ready", cgroup=cgroup)
    if not (line := sys.stdin.buffer.readline()):
        return
    asked = json.loads(line)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    try:
        spec = importlib.util.spec_from_file_location("submission", path)
        assert spec and spec.loader
        module = sys.modules["submission"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except BaseException as e:
        return fail(f"cannot be loaded: {error_text(e)}")
    for name in ("build_model", "add"):
        if not callable(getattr(module, name, None)):
            return fail(f"expected it to define {name}()")
    try:
        built = module.build_model()
    except BaseException as e:
        return fail(f"build_model() raised {error_text(e)}")
    if not isinstance(built, tuple) or len(built) != 2 or not isinstance(built[1], dict):
        gave = clean_text(type(built).__name__)
        return fail(f"expected build_model() to give (model, metadata), got {gave}")
    model, metadata = built
    say(event="built", metadata=clean_metadata(metadata), **tensor_sizes(model))
    for a, b in asked:
        try:
            got = module.add(model, a, b)
        except BaseException as e:  # a wrong answer, like any other
            say(event="answer", raised=error_text(e))
            continue
        try:
            number = operator.index(got)
            if isinstance(got, bool):
                raise TypeError
        except TypeError:
            what = f"{clean_text(type(got).__name__)} ({clean_text(got)})"
            return fail(f"expected add({a}, {b}) to give an int, got {what}")
        if abs(number) < 10**MAX_ANSWER_DIGITS:
            say(event="answer", got=number)
        else:
            say(event="answer", raised=TOO_LARGE)


def tensor_sizes(model: object) -> dict[str, int]:
    """How many numbers a PyTorch module holds, each tensor once."""
    found = {}
    for name in ("parameters", "buffers"):
        try:
            once = {id(t): t for t in getattr(model, name)()}
            found[name] = sum(int(t.numel()) for t in once.values())
        except BaseException:  # not such a module
            return {}
    return found


# ── its words: short, of one line, and nothing in them that a terminal obeys ───────────────────
def clean_metadata(metadata: "dict[object, object]") -> dict[str, object]:
    return {clean_text(k)[:40]: clean_value(v) for k, v in list(metadata.items())[:MAX_ITEMS]}


def clean_value(value: object) -> object:
    """A value that JSON has: a reasonable number, a short text, or a list of short texts."""
    if isinstance(value, (list, tuple)):
        return [clean_text(v) for v in value[:MAX_ITEMS]]
    kept = value is None or isinstance(value, bool) or (type(value) is int and abs(value) < 10**18)
    return value if kept or (type(value) is float and math.isfinite(value)) else clean_text(value)


def clean_text(value: object) -> str:
    try:
        return escape_unprintable(" ".join(str(value).split()))
    except BaseException:  # its own __str__, or a number of too many digits
        return "?"


def escape_unprintable(text: str) -> str:
    """What has no picture (controls, escapes, turns of the text, half characters) as its code."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:MAX_TEXT_CHARACTERS])
    return text[:MAX_TEXT_CHARACTERS]


def error_text(e: BaseException) -> str:
    return f"{clean_text(type(e).__name__)}: {clean_text(e)}".removesuffix(": ")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2] == "True")
    except BaseException as e:
        os.write(2, f"\n{error_text(e)}\n".encode())
        os._exit(1)
    os._exit(0)  # threads that the submission left do not keep the process alive

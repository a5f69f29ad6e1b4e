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

LONGEST = 200  # characters of a text
MOST = 20  # items of a list, or of metadata
DIGITS = 30  # of an answer
LARGE = f"a number of more than {DIGITS} digits"


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
        return fail(f"cannot be loaded: {words(e)}")
    for name in ("build_model", "add"):
        if not callable(getattr(module, name, None)):
            return fail(f"expected it to define {name}()")
    try:
        built = module.build_model()
    except BaseException as e:
        return fail(f"build_model() raised {words(e)}")
    if not isinstance(built, tuple) or len(built) != 2 or not isinstance(built[1], dict):
        gave = short(type(built).__name__)
        return fail(f"expected build_model() to give (model, metadata), got {gave}")
    model, metadata = built
    say(event="built", metadata=table(metadata), **entries(model))
    for a, b in asked:
        try:
            got = module.add(model, a, b)
        except BaseException as e:  # a wrong answer, like any other
            say(event="answer", raised=words(e))
            continue
        try:
            number = operator.index(got)
            if isinstance(got, bool):
                raise TypeError
        except TypeError:
            what = f"{short(type(got).__name__)} ({short(got)})"
            return fail(f"expected add({a}, {b}) to give an int, got {what}")
        if abs(number) < 10**DIGITS:
            say(event="answer", got=number)
        else:
            say(event="answer", raised=LARGE)


def entries(model: object) -> dict[str, int]:
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
def table(metadata: "dict[object, object]") -> dict[str, object]:
    return {short(k)[:40]: plain(v) for k, v in list(metadata.items())[:MOST]}


def plain(value: object) -> object:
    """A value that JSON has: a reasonable number, a short text, or a list of short texts."""
    if isinstance(value, (list, tuple)):
        return [short(v) for v in value[:MOST]]
    kept = value is None or isinstance(value, bool) or (type(value) is int and abs(value) < 10**18)
    return value if kept or (type(value) is float and math.isfinite(value)) else short(value)


def short(value: object) -> str:
    try:
        return shown(" ".join(str(value).split()))
    except BaseException:  # its own __str__, or a number of too many digits
        return "?"


def shown(text: str) -> str:
    """What has no picture (controls, escapes, turns of the text, half characters) as its code."""
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:LONGEST])
    return text[:LONGEST]


def words(e: BaseException) -> str:
    return f"{short(type(e).__name__)}: {short(e)}".removesuffix(": ")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2] == "True")
    except BaseException as e:
        os.write(2, f"\n{words(e)}\n".encode())
        os._exit(1)
    os._exit(0)  # threads that the submission left do not keep the process alive

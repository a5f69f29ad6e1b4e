"""Script of a submission's process, started by the sandbox. Uses only the standard library.

It loads the file as the contest does and writes JSON lines on a copy of the original stdout.
Output printed by the submission is discarded. trust.py validates every line.
"""

import importlib.util
import json
import math
import operator
import os
import sys

MAX_TEXT_CHARACTERS = 200
MAX_ITEMS = 20  # number of items of a list or of metadata
MAX_ANSWER_DIGITS = 30
TOO_LARGE = f"a number of more than {MAX_ANSWER_DIGITS} digits"


def main(path: str, cgroup: bool) -> None:
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")

    def send(**line: object) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    def fail(reason: str) -> None:
        send(event="failed", why=reason)

    # No code of the submission has run yet. The reply contains the pairs.
    send(event="ready", cgroup=cgroup)
    if not (line := sys.stdin.buffer.readline()):
        return
    pairs = json.loads(line)
    null_device = os.open(os.devnull, os.O_RDWR)
    os.dup2(null_device, 0)
    os.dup2(null_device, 1)
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
        kind = clean_text(type(built).__name__)
        return fail(f"expected build_model() to give (model, metadata), got {kind}")
    model, metadata = built
    send(event="built", metadata=clean_metadata(metadata), **tensor_sizes(model))
    for a, b in pairs:
        try:
            got = module.add(model, a, b)
        except BaseException as e:  # any exception counts as a wrong answer
            send(event="answer", raised=error_text(e))
            continue
        try:
            number = operator.index(got)
            if isinstance(got, bool):
                raise TypeError
        except TypeError:
            value = f"{clean_text(type(got).__name__)} ({clean_text(got)})"
            return fail(f"expected add({a}, {b}) to give an int, got {value}")
        if abs(number) < 10**MAX_ANSWER_DIGITS:
            send(event="answer", got=number)
        else:
            send(event="answer", raised=TOO_LARGE)


def tensor_sizes(model: object) -> dict[str, int]:
    """Count the numbers in a PyTorch module's tensors. Shared tensors are counted once."""
    sizes = {}
    for name in ("parameters", "buffers"):
        try:
            tensors = {id(t): t for t in getattr(model, name)()}
            sizes[name] = sum(int(t.numel()) for t in tensors.values())
        except BaseException:  # the object is not a PyTorch module
            return {}
    return sizes


# ── texts: short, on one line, without control characters ──────────────────────────────────────
def clean_metadata(metadata: "dict[object, object]") -> dict[str, object]:
    return {clean_text(k)[:40]: clean_value(v) for k, v in list(metadata.items())[:MAX_ITEMS]}


def clean_value(value: object) -> object:
    """Convert a value for JSON: limit the size of a number, a string, or a list of strings."""
    if isinstance(value, (list, tuple)):
        return [clean_text(v) for v in value[:MAX_ITEMS]]
    plain = value is None or isinstance(value, bool)
    number = (type(value) is int and abs(value) < 10**18) or (
        type(value) is float and math.isfinite(value)
    )
    return value if plain or number else clean_text(value)


def clean_text(value: object) -> str:
    try:
        return escape_unprintable(" ".join(str(value).split()))
    except BaseException:  # raised by __str__ or by a number with too many digits
        return "?"


def escape_unprintable(text: str) -> str:
    """Escape unprintable characters: controls, bidirectional marks and surrogates."""
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
    os._exit(0)  # threads started by the submission do not keep the process alive

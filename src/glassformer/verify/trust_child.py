"""What runs in the process of someone else's submission: a script, started by trust.py, that needs Python alone.

It limits itself, loads the file as the board does, and answers in JSON lines on what was its stdout; what the
submission prints goes nowhere. Nothing that it says need be believed: trust.py checks the form of every line.
"""

import contextlib
import ctypes
import importlib.util
import json
import operator
import os
import sys

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # flags of Linux' unshare


def main(path: str, limits: dict[str, int]) -> None:
    asked = json.load(sys.stdin)
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)

    def say(**line: object) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    say(event="limits", network=not without_network(), limited=limit(limits))
    try:
        spec = importlib.util.spec_from_file_location("submission", path)
        assert spec and spec.loader
        module = sys.modules["submission"] = importlib.util.module_from_spec(spec)
        sys.path.append(os.path.dirname(path))
        spec.loader.exec_module(module)
    except BaseException as e:
        return say(event="failed", why=f"cannot be loaded: {words(e)}")
    for name in ("build_model", "add"):
        if not callable(getattr(module, name, None)):
            return say(event="failed", why=f"expected it to define {name}()")
    try:
        built = module.build_model()
    except BaseException as e:
        return say(event="failed", why=f"build_model() raised {words(e)}")
    if not isinstance(built, tuple) or len(built) != 2 or not isinstance(built[1], dict):
        gave = short(type(built).__name__)
        return say(event="failed", why=f"expected build_model() to give (model, metadata), got {gave}")
    model, metadata = built
    say(event="built", metadata={str(k)[:40]: plain(v) for k, v in list(metadata.items())[:20]}, **entries(model))
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
            what = f"{type(got).__name__} ({short(got)})"
            return say(event="failed", why=f"expected add({a}, {b}) to give an int, got {what}")
        if abs(number) < 10**30:
            say(event="answer", got=number)
        else:
            say(event="answer", raised="a number of more than 30 digits")


def without_network() -> bool:
    """Moves into a network namespace that has nothing in it, where the system lets us."""
    user, group = os.getuid(), os.getgid()
    try:
        libc = ctypes.CDLL(None)
        if libc.unshare(NEW_USER | NEW_NETWORK):
            return bool(libc.unshare(NEW_NETWORK) == 0)
    except (OSError, AttributeError):
        return False
    for file, text in (("uid_map", f"{user} {user} 1"), ("setgroups", "deny"), ("gid_map", f"{group} {group} 1")):
        with contextlib.suppress(OSError), open(f"/proc/self/{file}", "w") as f:
            f.write(text)
    return True


def limit(limits: dict[str, int]) -> list[str]:
    """Sets the limits that this system has; says which."""
    try:
        import resource
    except ImportError:
        return []
    kinds = {"cpu": resource.RLIMIT_CPU, "memory": resource.RLIMIT_AS, "file": resource.RLIMIT_FSIZE}
    done = []
    for name, kind in kinds.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (limits[name], limits[name] + 1))  # at the first it gets a signal that says why
            done.append(name)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return done


def entries(model: object) -> dict[str, int]:
    """How many numbers a PyTorch module holds, each tensor once."""
    found = {}
    for name in ("parameters", "buffers"):
        try:
            found[name] = sum(int(t.numel()) for t in {id(t): t for t in getattr(model, name)()}.values())
        except BaseException:  # not such a module
            return {}
    return found


def plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value if not isinstance(value, int) or abs(value) < 10**18 else short(value)
    if isinstance(value, (list, tuple)):
        return [short(v) for v in value[:20]]
    return short(value)


def short(value: object) -> str:
    try:
        return " ".join(str(value).split())[:200]
    except BaseException:
        return "?"


def words(e: BaseException) -> str:
    return f"{type(e).__name__}: {short(e)}".removesuffix(": ")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))

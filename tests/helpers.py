"""Helpers of tests: random models, error checks, cached proofs, changed checkpoints, processes."""

import hashlib
import json
import multiprocessing
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from glassformer import Config, GlassformerError, Model, Vocabulary, load_task
from glassformer.core.checkpoint import digest
from glassformer.core.weight_shapes import array_shapes, required_shapes
from glassformer.proof import prove
from glassformer.registry import file_digest
from glassformer.utils.errors import CODES
from glassformer.verification import verify_events


def random_model(seed: int = 0, extras: bool = True, **choices: Any) -> Model:
    """Return a random model with all arrays of its config, or required ones if not `extras`."""
    sizes = {
        "d_vocab": 7,
        "n_ctx": 9,
        "d_model": 4,
        "n_layers": 2,
        "n_heads": 3,
        "d_head": 3,
        "d_mlp": 5,
    }
    gated = choices.pop("gated", extras)
    config = Config(**(sizes | choices))
    rng = np.random.default_rng(seed)
    names = [
        n
        for n in (array_shapes(config) if extras else required_shapes(config))
        if config.d_mlp or ".mlp." not in n
    ]
    weights = {
        n: rng.normal(size=array_shapes(config)[n]) for n in names if gated or "gate" not in n
    }
    return Model(config, weights, Vocabulary.numbers(config.d_vocab))


@contextmanager
def raises(code: str | type[Exception], *mentions: object) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect a GlassformerError with this code, or an exception of this type.

    Its message must name `mentions`: what the caller typed or what the error is about, such as an
    argument, a value, a file or a name. They are never a phrase of the message, whose wording is
    free.
    """
    assert isinstance(code, type) or code in CODES, f"no such code: {code}"
    with pytest.raises(GlassformerError if isinstance(code, str) else code) as caught:
        yield caught
    message, actual = str(caught.value), getattr(caught.value, "code", code)
    assert isinstance(code, type) or actual == code, f"code {actual!r}, not {code!r}: {message}"
    missing = [str(mention) for mention in mentions if str(mention) not in message]
    assert not missing, f"no {missing} in: {message}"


def largest_difference(a: Any, b: Any) -> float:
    """Return max |a-b| relative to max |a|; infinities must be at the same indices."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    assert a.shape == b.shape, f"shapes {a.shape} and {b.shape}"
    assert (np.isfinite(a) == np.isfinite(b)).all(), "not finite in different places"
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    return float(np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(a).max(initial=0.0)))


# folder in which the processes of one run share slow results; set by conftest.py
shelf: list[Path] = []
WATCHERS = ("progress",)  # options that change no result


def once(work: Any) -> Any:
    """Cache `prove` or `verify_events` for all processes of a test run.

    Calls whose arguments cannot be pickled (hooks, tasks of a test) are not cached.
    """
    done: dict[Any, Any] = {}

    def ask(model: Model, task: Any, **options: Any) -> Any:
        asked = sorted((n, x) for n, x in options.items() if n not in WATCHERS)
        made = json.dumps(dict(model.provenance), sort_keys=True, default=repr)
        try:
            texts = pickle.dumps(task), pickle.dumps(asked)
        except (pickle.PicklingError, AttributeError, TypeError):
            return work(model, task, **options)
        key = digest(model), made, file_digest(task.ref), *texts
        if key not in done:
            done[key] = shared(f"{work.__name__} {key}", lambda: work(model, task, **options))
        return (x for x in done[key]) if isinstance(done[key], list) else done[key]

    return ask


def shared(name: str, work: Any) -> Any:
    """Return the stored result of another process of this run, or compute and store it."""
    path = shelf[0] / hashlib.sha256(name.encode()).hexdigest() if shelf else None
    if path and path.exists():
        return pickle.loads(path.read_bytes())  # made by a test, in a folder of this run
    result = work()
    result = list(result) if isinstance(result, Iterator) else result
    if path:
        whole = path.with_suffix(f".{os.getpid()}")
        whole.write_bytes(pickle.dumps(result))
        whole.replace(path)
    return result


prove_once, check_once = once(prove), once(verify_events)


def sealed_header(path: Any) -> Any:
    """Return a checkpoint's header, with its checksum."""
    with safe_open(path, "numpy") as f:
        return json.loads(f.metadata()["glassformer"])


def resealed(
    path: Any, change: Any = lambda sealed: None, arrays: Any = None, seal: bool = True
) -> Any:
    """Change a checkpoint's header or arrays in place, with a valid checksum if `seal`."""
    sealed = sealed_header(path)
    with safe_open(path, "numpy") as f:
        tensors = {n: f.get_tensor(n) for n in f.keys()} | (arrays or {})  # noqa: SIM118 - not a dict
    change(sealed)
    if seal and isinstance(sealed, dict):
        words = [sealed.get("header"), sealed.get("model")]
        text = json.dumps(words, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        sealed["sha256"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    data = to_bytes(tensors, {"glassformer": json.dumps(sealed)})
    os.unlink(path)  # a new file: some systems wait for the disk when an old one is cut short
    path.write_bytes(data)
    return path


def sealed_state(key: str, header: Any, arrays: Any) -> bytes:
    """Return the state of a run with this header and a valid checksum."""
    text = json.dumps(header)
    h = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        h.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        h.update(arrays[name].tobytes())
    return to_bytes(arrays, {key: text, "sha256": h.hexdigest()})


# ── other processes ────────────────────────────────────────────────────────────────────────────
PATIENCE = 600.0  # seconds; reached only by a hang


def wait_for(condition: Any, seconds: float = PATIENCE) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def own_children() -> Callable[[], list[Any]]:
    """Return a function that lists the processes started from now on."""
    before = set(multiprocessing.active_children())
    return lambda: [c for c in multiprocessing.active_children() if c not in before]


@dataclass(frozen=True)
class Held:
    """A load_task that creates a file `begun-PID`, then waits for a file `go`."""

    folder: Path

    def __call__(self, ref: str) -> Any:
        Path(self.folder, f"begun-{os.getpid()}").touch()
        wait_for(Path(self.folder, "go").exists)
        return load_task(ref)

"""Are the figures of the documents current? Each script here draws with `put`, or `keep`:

    python docs/figures/inside.py            draws its figures, and writes what is on them
    python docs/figures/inside.py --check    draws nothing: compares with what was written

What is on a figure is in numbers.json: its words, its bars, lines and maps in short, and the
SHA-256 of the file, so that a picture and its numbers are of one run. Numbers may differ a little
between machines, words may not.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
NUMBERS = HERE / "numbers.json"
CLOSE = 0.03  # of the largest number of a row: what another machine may round or train otherwise


def known() -> dict[str, Any]:
    return dict(json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {})


def on(fig: Any) -> dict[str, Any]:
    """What is on a figure: words, and rows of numbers."""
    fig.draw_without_rendering()  # the ticks are known then
    words, rows = [], []
    for ax in fig.axes:
        ticks = [*ax.get_xticklabels(), *ax.get_yticklabels()]
        texts = [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts, *ticks]
        words += [t.get_text() for t in texts if t.get_visible() and _is_word(t.get_text())]
        bars = [max(p.get_width(), p.get_height(), key=abs) for p in ax.patches
                if hasattr(p, "get_width")]  # fmt: skip
        rows += [bars, *(_short(line.get_ydata()) for line in ax.lines)]
        rows += [_short(image.get_array()) for image in (*ax.images, *ax.collections)]
    rounded = [[float(f"{x:.3g}") for x in row] for row in rows if len(row)]
    return {"words": sorted(set(words)), "rows": rounded}


def _is_word(text: str) -> bool:
    """Whether a text is one: numbers on axes are where Matplotlib finds room."""
    return any(c.isalpha() for c in text) and not any(c.isdigit() for c in text)


def _short(values: Any) -> list[float]:
    """Least, mean, spread and largest of some numbers."""
    try:
        x = np.ma.masked_invalid(np.ma.asarray(values, dtype=float)).compressed()
    except (TypeError, ValueError):
        return []
    return [x.min(), x.mean(), x.std(), x.max()] if x.size else []


def differs(new: dict[str, Any], old: dict[str, Any], close: float = CLOSE) -> str:
    """How what would be drawn differs from what was; "" if it does not."""
    if new["words"] != old["words"]:
        return f"words {sorted({*new['words']} ^ {*old['words']})}"
    if [len(row) for row in new["rows"]] != [len(row) for row in old["rows"]]:
        return "other bars, lines or maps"
    for a, b in zip(new["rows"], old["rows"], strict=True):
        x, y = np.array(a), np.array(b)
        if (np.abs(x - y) > close * max(np.abs(y).max(), 1e-9)).any():
            return f"{a} is now, {b} was drawn"
    return ""


def put(fig: Any, name: str, close: float = CLOSE) -> None:
    """Writes a figure and what is on it, or with --check compares; a difference ends the script.

    `close`: how near numbers must be. What a training comes by is another on every machine.
    """
    from glassformer.plotting.style import save

    keep(name, on(fig), lambda path: save(fig, path), close)


def keep(name: str, found: dict[str, Any], draw: Any, close: float = CLOSE) -> None:
    """The same of whatever is drawn by `draw(path)`, with what was found on it."""
    path = HERE / name
    if "--check" in sys.argv:
        before = known().get(name)
        if why := differs(found, before, close) if before else "was never drawn":
            sys.exit(f"{name} is not current: {why}; python {sys.argv[0]} draws it anew")
        print(f"{name} is current")
        return
    draw(path)
    seal = hashlib.sha256(path.read_bytes()).hexdigest()
    text = json.dumps(dict(sorted((known() | {name: {"sha256": seal, **found}}).items())), indent=0)
    NUMBERS.write_text(text + "\n")
    print(name)

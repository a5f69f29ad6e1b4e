"""Keep the figures of the documents current. Each script here draws with `put` or `keep`:

    python docs/figures/inside.py            draw its figures, and write their contents
    python docs/figures/inside.py --check    compare with the written contents, without drawing

numbers.json has the contents of each figure: its words, a summary of its bars, lines and maps, and
the SHA-256 of the file. Numbers may differ slightly between machines, words may not.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
NUMBERS = HERE / "numbers.json"
CLOSE = 0.03  # relative to the largest number of a row


def recorded() -> dict[str, Any]:
    return dict(json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {})


def contents_of(fig: Any) -> dict[str, Any]:
    """Return the words and rows of numbers of a figure."""
    fig.draw_without_rendering()  # sets the ticks
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
    """Tell words from tick labels, which depend on the layout."""
    return any(c.isalpha() for c in text) and not any(c.isdigit() for c in text)


def _short(values: Any) -> list[float]:
    """Return min, mean, std and max."""
    try:
        x = np.ma.masked_invalid(np.ma.asarray(values, dtype=float)).compressed()
    except (TypeError, ValueError):
        return []
    return [x.min(), x.mean(), x.std(), x.max()] if x.size else []


def differs(new: dict[str, Any], old: dict[str, Any], close: float = CLOSE) -> str:
    """Describe the first difference between two contents; "" if there is none."""
    if new["words"] != old["words"]:
        return f"words {sorted({*new['words']} ^ {*old['words']})}"
    if [len(row) for row in new["rows"]] != [len(row) for row in old["rows"]]:
        return "other bars, lines or maps"
    for a, b in zip(new["rows"], old["rows"], strict=True):
        x, y = np.array(a), np.array(b)
        if (np.abs(x - y) > close * max(np.abs(y).max(), 1e-9)).any():
            return f"{a}, not {b}"
    return ""


def put(fig: Any, name: str, close: float = CLOSE) -> None:
    """Write a figure and its contents; with --check compare, and exit on a difference.

    `close` is the tolerance of numbers, larger for trained models.
    """
    from glassformer.plotting.style import save

    keep(name, contents_of(fig), lambda path: save(fig, path), close)


def keep(name: str, contents: dict[str, Any], draw: Any, close: float = CLOSE) -> None:
    """Do the same for a picture drawn by `draw(path)`, with its contents."""
    path = HERE / name
    if "--check" in sys.argv:
        before = recorded().get(name)
        if difference := differs(contents, before, close) if before else "not drawn yet":
            sys.exit(f"{name} is not current: {difference}. Run python {sys.argv[0]}")
        print(f"{name} is current")
        return
    draw(path)
    seal = hashlib.sha256(path.read_bytes()).hexdigest()
    figures = recorded() | {name: {"sha256": seal, **contents}}
    text = json.dumps(dict(sorted(figures.items())), indent=0)
    NUMBERS.write_text(text + "\n")
    print(name)

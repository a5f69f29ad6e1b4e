"""Make the tables of docs/canon.md: every library source, compiled and proved in both types.

    python docs/figures/canon.py            the tables, printed
    python docs/figures/canon.py --write    put into docs/canon.md
    python docs/figures/canon.py NAME…      only these sources, printed

All of it takes about two minutes of one processor.
"""

import re
import sys
import time
from pathlib import Path
from typing import Any

from glassformer import GlassformerError, compiler
from glassformer.compiler import library

PAGE = Path(__file__).parents[1] / "canon.md"
# Entries of Tracr's models of these at vocabulary = length = n, for n = 10 and 20.
TRACR = {
    "reverse": (108_059, 675_879), "sort": (269_903, 3_532_223), "sort-unique": (9_611, 33_451),
    "histogram": (4_153, 14_213), "length": (4_153, 14_213),
}  # fmt: skip
STUDY = [*TRACR, "histogram-so-far", "most-frequent", "second-most-frequent", "dyck-1", "dyck-2"]
DTYPES = ("float64", "float32")


class Measured:
    """Cache of compilations: each source is compiled once."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}

    def __call__(self, name: str, dtype: str, target: str = "", **options: int) -> dict[str, Any]:
        ref = f"{name} {dtype} {target} {sorted(options.items())}"
        if ref not in self.results:
            self.results[ref] = measured(name, dtype, target, options)
            print(ref, self.results[ref], file=sys.stderr)
        return self.results[ref]


def measured(name: str, dtype: str, target: str, options: dict[str, int]) -> dict[str, Any]:
    """Return sizes and seconds of compiling and proving, or `why` it failed."""
    start = time.process_time()
    text = library.source_paths()[name].read_text("utf-8")
    try:
        compiled = compiler.compile(text, name, options=options, dtype=dtype, target=target)
    except GlassformerError as e:
        return {"why": str(e), "seconds": time.process_time() - start}
    c = compiled.model.config
    return {
        "layers": c.n_layers, "width": c.d_model, "seconds": time.process_time() - start,
        "parameters": sum(w.size for w in compiled.model.weights.values()),
    }  # fmt: skip


def lines(name: str) -> int:
    """Count the lines without the docstring, the options' examples and blank lines."""
    text = library.source_paths()[name].read_text("utf-8")
    text = re.sub(r'^""".*?"""\n', "", text, flags=re.DOTALL)
    return sum(
        bool(x.strip()) and not x.startswith(("#", "examples", " ", "}")) for x in text.splitlines()
    )


def does(name: str) -> str:
    """Return the sentence that describes a source, without its example."""
    return library.describe(name).split(": ")[0].rstrip(".").replace("|", "\\|")


def canon(measure: Measured, names: list[str]) -> str:
    out = [
        "| source | what it does | lines | layers | width | parameters | float64 | float32 | s |",
        "|---|---|--:|--:|--:|--:|---|---|--:|",
    ]
    for name in names:
        wide, narrow = (measure(name, dtype) for dtype in DTYPES)
        shown = wide if "why" not in wide else narrow
        sizes = [f"{shown[k]:,}" if k in shown else "–" for k in ("layers", "width", "parameters")]
        verdicts = ["–" if "why" in found else "proved" for found in (wide, narrow)]
        if all("why" not in x for x in (wide, narrow)) and wide["width"] != narrow["width"]:
            verdicts[1] = f"proved, {narrow['parameters']:,}"
        cells = [
            f"`{name}`",
            does(name),
            str(lines(name)),
            *sizes,
            *verdicts,
            f"{wide['seconds']:.2f}",
        ]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def totals(measure: Measured, names: list[str]) -> str:
    many = {d: sum("why" not in measure(n, d) for n in names) for d in DTYPES}
    return (
        f"{len(names)} sources: {many['float64']} proved in float64, {many['float32']} in float32."
    )


def unproved(measure: Measured, names: list[str]) -> str:
    out = ["| source | in | why |", "|---|---|---|"]
    for name in names:
        for dtype in DTYPES:
            if why := measure(name, dtype).get("why"):
                reason = why.removeprefix(f"{name} — ").removeprefix(f"not proved in {dtype}: ")
                reason = reason.replace("|", "\\|").splitlines()[0]
                out.append(f"| `{name}` | {dtype} | {reason} |")
    return "\n".join(out)


def study(measure: Measured) -> str:
    out = [
        "| source | n = 10 | n = 20 | GPT-2's shapes, 10 | 20 | Tracr's, 10 | 20 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in STUDY:
        cells = []
        for target in ("", "gpt2"):
            for n in (10, 20):
                options = {"length": n} | ({} if name.startswith("dyck") else {"vocab": n})
                results = [measure(name, dtype, target, **options) for dtype in DTYPES]
                sizes = dict.fromkeys(
                    "–" if "why" in x else f"{x['parameters']:,}" for x in results
                )
                cells.append(" / ".join(sizes))
        tracr = [f"{x:,}" for x in TRACR[name]] if name in TRACR else ["", ""]
        out.append(f"| `{name}` | {' | '.join([*cells, *tracr])} |")
    return "\n".join(out)


def main(words: list[str]) -> None:
    measure, write = Measured(), "--write" in words
    names = [w for w in words if not w.startswith("--")] or list(library.source_paths())
    parts = {"canon": canon(measure, names)}
    if write or len(names) > 20:
        parts |= {
            "totals": totals(measure, names), "unproved": unproved(measure, names),
            "study": study(measure),
        }  # fmt: skip
    text = PAGE.read_text() if PAGE.exists() else ""
    for part, table in parts.items():
        if not write:
            print(table, end="\n\n")
        text = re.sub(
            rf"(<!-- {part} -->\n).*?(<!-- end -->)", lambda m, t=table: f"{m[1]}{t}\n{m[2]}",
            text, flags=re.DOTALL,
        )  # fmt: skip
    if write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Compare compiled models with Tracr's published sizes, and time compiling and proving.

The programs are those of docs/canon.md that Tracr has, with vocabulary = length = n. Times are
seconds of processor time.

python benchmarks/compile.py                n = 10 and 20, in both float types
python benchmarks/compile.py NAME…          only these sources

Prints a line of JSON per model, the summary last. The exit status is 1 if a model is not proved or
takes longer than the limit. (docs/figures/canon.py makes the table of all sources.)
"""

import json
import sys

from timing import seconds  # isort: skip - it sets one thread

from glassformer import GlassformerError
from glassformer.compiler import compile, library

# Tracr's published numbers of parameters (all entries of all arrays) at n = 10 and 20.
TRACR = {
    "reverse": (108_059, 675_879), "sort": (269_903, 3_532_223), "sort-unique": (9_611, 33_451),
    "histogram": (4_153, 14_213), "length": (4_153, 14_213),
}  # fmt: skip
STUDY = [*TRACR, "histogram-so-far", "most-frequent", "second-most-frequent", "dyck-1", "dyck-2"]
SIZES = (10, 20)
LIMIT = 10.0  # seconds each, at n = 20


def measured(name, n, dtype):
    """Compile one source and return a record of the result."""
    text = library.source_paths()[name].read_text("utf-8")
    options = {o: n for o in ("vocab", "length") if f"{o} = option" in text}
    out = {"source": name, "n": n, "dtype": dtype, "parameters": None}

    def make():
        try:
            compiled = compile(text, name, options=options, dtype=dtype)
            out["parameters"] = sum(w.size for w in compiled.model.weights.values())
        except GlassformerError as e:
            out["why"] = str(e)

    out["seconds"] = round(seconds(make), 2)
    if (size := out["parameters"]) and name in TRACR:
        out["tracr_over_ours"] = round(TRACR[name][SIZES.index(n)] / size, 1)
    return out


def main(names):
    rows = []
    for name in names or STUDY:
        for n in SIZES:
            for dtype in ("float64", "float32"):
                rows.append(measured(name, n, dtype))
                print(json.dumps(rows[-1]), flush=True)
    proved = [x for x in rows if x["parameters"]]
    result = {
        "proved": len(proved), "of": len(rows),
        "longest": max(x["seconds"] for x in rows), "seconds": sum(x["seconds"] for x in rows),
        "tracr_over_ours": {f"{x['source']} {x['n']}": x["tracr_over_ours"] for x in proved
                            if "tracr_over_ours" in x and x["dtype"] == "float64"},
    }  # fmt: skip
    print(json.dumps(result))
    return len(proved) == len(rows) and result["longest"] < LIMIT


if __name__ == "__main__":
    raise SystemExit(not main(sys.argv[1:]))

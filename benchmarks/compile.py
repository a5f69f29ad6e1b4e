"""How long compiling and proving takes, in seconds of processor time, and the table of the canon.

python benchmarks/compile.py            the programs of the study at n = 10 and 20
python benchmarks/compile.py --table    every source of the library at its defaults
"""

import argparse
import time

from glassformer import GlassformerError
from glassformer.lang import compile, library

STUDY = ["reverse", "sort", "sort-unique", "histogram-so-far", "histogram", "length",
         "most-frequent", "second-most-frequent", "dyck-1", "dyck-2", "induction"]  # fmt: skip
LIMIT = 10.0  # seconds each, at n = 20


def timed(name, options, dtype, target=""):
    """(what was compiled or None, seconds of processor time)."""
    text = library.sources()[name].read_text("utf-8")
    start = time.process_time()
    try:
        found = compile(text, name, options=options, dtype=dtype, target=target)
    except GlassformerError:
        found = None
    return found, time.process_time() - start


def size(found):
    return sum(w.size for w in found.model.weights.values())


def study():
    """Whether all are proved within the limit."""
    good = True
    print(f"{'source':22} {'n':>3} {'type':8} {'parameters':>10} {'gpt2':>10} {'seconds':>8}")
    for name in STUDY:
        text = library.sources()[name].read_text("utf-8")
        for n in (10, 20):
            options = {o: n for o in ("vocab", "length") if f"{o} = option" in text}
            wide, _ = timed(name, options, "float64", "gpt2")
            for dtype in ("float64", "float32"):
                found, seconds = timed(name, options, dtype)
                good &= found is not None and seconds < LIMIT
                many, gpt2 = (f"{size(f):,}" if f else "not proved" for f in (found, wide))
                print(f"{name:22} {n:3} {dtype:8} {many:>10} {gpt2:>10} {seconds:8.2f}", flush=True)
    return good


def table():
    """The canon, as a table of Markdown."""
    print("| source | lines | layers | width | parameters | proved in | seconds |")
    print("|---|--:|--:|--:|--:|---|--:|")
    proved = 0
    for name, path in library.sources().items():
        body = path.read_text("utf-8").split('"""')[2].strip().splitlines()
        lines = sum(bool(line.strip()) for line in body if not line.startswith("examples"))
        both = {d: timed(name, {}, d) for d in ("float64", "float32")}
        types = [d for d, (found, _) in both.items() if found]
        proved += bool(types)
        shape = "– | – | –"
        if types:
            found = both[types[0]][0]
            c = found.model.config
            shape = f"{c.n_layers} | {c.d_model} | {size(found):,}"
        seconds = sum(s for _, s in both.values())
        said = ", ".join(types) or "none"
        print(f"| {name} | {lines} | {shape} | {said} | {seconds:.1f} |", flush=True)
    print(f"\n{proved} of {len(library.sources())} proved")
    return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="the table of the canon")
    raise SystemExit(not (table() if parser.parse_args().table else study()))

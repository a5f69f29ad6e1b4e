"""Print the table of docs/beyond.md: proofs of hand-made programs and their times.

python docs/proved.py            prints the table
python docs/proved.py REF …      of these refs only
"""

import sys
import time

from glassformer import GlassformerError, load, resolve
from glassformer.proof import prove
from glassformer.utils.limits import format_count

REFS = [
    "hello-world", "repeat-last", "add-digit", "add-digit:variant=table", "add-mod",
    "add-mod:place=tens", "lookup", "lookup:table=parity-6", "lookup:variant=hash",
    "modular-addition", "modular-addition:operation=-", "modular-addition:variant=clock",
    "modular-addition:p=2003", "reverse", "reverse:length=20", "reverse:length=20,dtype=float32",
    "min", "max", "min:variant=book", "min:vocab=1000,dtype=float32", "sort:vocab=129",
    "sort:vocab=20,variant=book", "sort:variant=golden", "sort:vocab=9,repeats=true",
    "sort-digits:length=4", "search:prefix=1,vocab=4,block=9", "search", "multiplication",
    "addition:digits=10", "addition:digits=2,variant=book", "adder-least", "adder-hinge",
    "adder-prefix", "adder-36",
]  # fmt: skip


def line(ref):
    """Return a row of the table."""
    model = load(ref)
    task = resolve.load_task(model)
    start, checkers = time.process_time(), ""
    try:
        proof = prove(model, task, independent=None)
        result = proof.result
        if proof.holds:
            method = {"enumeration": "every input run"}.get(proof.method, proof.method)
            result += f", {method}, margin {proof.margin:.2g}"
            checkers = ", ".join(f"{c.name} {c.seconds:.1f} s" for c in proof.checkers if c.holds)
        else:
            result += f": {proof.reason}"
    except GlassformerError as e:
        result = f"not covered: {e}"
    checkers = checkers or f"{time.process_time() - start:.1f} s"
    return f"| `{ref}` | {format_count(task.inputs)} | {result} | {checkers} |"


def main():
    print("| program | inputs | result | checkers that agreed |\n|---|---|---|---|")
    for ref in sys.argv[1:] or REFS:
        print(line(ref), flush=True)


if __name__ == "__main__":
    main()

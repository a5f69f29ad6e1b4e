"""Count the code that a command uses: functions called, their files, modules imported.

    python benchmarks/touched.py [COMMAND ...]

Each command runs in a fresh process under sys.setprofile, including its threads. Module-level code
is not counted as a function.
"""

import json
import subprocess
import sys
import tempfile

COMMANDS = {
    "run": ["run", "addition:digits=3", "127+458"],
    "verify": ["verify", "addition:digits=2", "--workers", "1"],
    "prove": ["prove", "addition:digits=2"],
    "compile": ["compile", "lang/first"],
    "train": [
        "train", "addition:digits=1", "--out", "m.safetensors", "--recipe", "fast",
        "--set", "steps=2",
    ],
    "report": ["report", "addition:digits=2", "--out", "r.html"],
}  # fmt: skip
CHILD = """
import json, os, sys, threading
called = set()
def watch(frame, event, argument):
    if event == "call":
        called.add(frame.f_code)
threading.setprofile(watch)
sys.setprofile(watch)
from glassformer.cli import main
import glassformer
sys.argv = ["glassformer", *json.loads(sys.argv[1])]
sys.stdout = open(os.devnull, "w")
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
root = os.path.dirname(glassformer.__file__)
optimized = 1  # CO_OPTIMIZED: set for functions, not for bodies of modules and classes
ours = {c for c in called if c.co_filename.startswith(root) and c.co_flags & optimized}
modules = [name for name in sys.modules if name.partition(".")[0] == "glassformer"]
figures = len(ours), len({c.co_filename for c in ours}), len(modules)
print(json.dumps(figures), file=sys.__stdout__)
"""


def touched(words: list[str]) -> list[int]:
    """Return the numbers of functions called, of their files, and of imported modules."""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.run(
            [sys.executable, "-c", CHILD, json.dumps(words)],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
    figures: list[int] = json.loads(child.stdout)
    return figures


if __name__ == "__main__":
    print(f"{'command':10}{'functions':>10}{'files':>7}{'modules':>9}")
    for name in sys.argv[1:] or COMMANDS:
        functions, files, modules = touched(COMMANDS[name])
        print(f"{name:10}{functions:>10}{files:>7}{modules:>9}", flush=True)

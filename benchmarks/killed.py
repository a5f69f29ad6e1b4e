"""Kill a training run at random moments (kill -9), resume it, and compare the final bits.

The last resume runs to the end; its file is compared with that of an undisturbed run. Half of the
kills wait for the full-domain phase. Prints JSON; the exit status is 1 if a bit differs.

    python benchmarks/killed.py --moments 20
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TASK = "addition:digits=1,order=ones"
# With few test rows the target is reached while rows are wrong, so the full-domain phase has work.
FIELDS = (
    "data=fresh holdout_fraction=0.05 test_rows=5 d_model=16 d_mlp=32 batch=32 steps=600 "
    "evaluate_every=10 target_accuracy=0.6 full_domain_steps=600"
)
COMMAND = [
    sys.executable, "-m", "glassformer", "train", TASK, "--recipe", "fast", "--seed", "1",
    *(word for field in FIELDS.split() for word in ("--set", field)),
]  # fmt: skip


def command(folder):
    return [*COMMAND, "--out", str(folder / "a.safetensors"), "--history", str(folder / "h.jsonl")]


def evaluations(folder):
    """Return the evaluations in the history so far; the last line may be cut off."""
    path, rows = folder / "h.jsonl", []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            break
        rows += [row] if row["kind"] == "evaluation" else []
    return rows


def disturb(folder, moments, rng, longest=0.3):
    """Start the run, kill and resume it `moments` times; return the state at each kill."""
    kills, late = [], moments // 2
    while len(kills) < moments:
        resume = ["--resume"] if (folder / "a.run.safetensors").exists() else []
        child = subprocess.Popen(
            [*command(folder), *resume], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        before = len(evaluations(folder))
        wanted = before + 1  # it has started, or resumed
        while child.poll() is None:
            now = evaluations(folder)
            phase = any("wrong" in row for row in now)
            if len(now) >= wanted and (phase or len(kills) < moments - late):
                break
            time.sleep(0.01)
        time.sleep(rng.random() * longest)
        if child.poll() is not None:  # it ended before the kill
            return kills
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        now = evaluations(folder)
        kills.append({
            "step": now[-1]["step"] if now else 0, "exact": any("wrong" in row for row in now),
        })  # fmt: skip
    return kills


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--moments", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options = options.parse_args()
    rng, kills = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as parent:
        calm = Path(parent) / "calm"
        calm.mkdir()
        subprocess.run(command(calm), check=True, stdout=subprocess.DEVNULL)
        wanted, runs, same = (calm / "a.safetensors").read_bytes(), 0, True
        while len(kills) < options.moments:  # a run may end before all are done
            folder = Path(parent) / f"run{runs}"
            folder.mkdir()
            kills += disturb(folder, options.moments - len(kills), rng)
            if (folder / "a.run.safetensors").exists():
                subprocess.run([*command(folder), "--resume"], check=True)
            same &= (folder / "a.safetensors").read_bytes() == wanted
            runs += 1
    late = sum(k["exact"] for k in kills)
    print(
        json.dumps(
            {"kills": kills, "in_the_full_domain_phase": late, "runs": runs, "same_bits": same}
        )
    )
    raise SystemExit(0 if same and late else 1)


if __name__ == "__main__":
    main()

"""Mutation testing: change one expression of the core at a time and see which test fails.

python tests/mutation.py /tmp/mutants                  # run what is left of the sample, then sum up
python tests/mutation.py /tmp/mutants --again          # run the survivors again, after adding tests
python tests/mutation.py /tmp/mutants --only proof/    # files whose path contains this
python tests/mutation.py /tmp/mutants --named          # the mutants in NAMED
python tests/mutation.py /tmp/mutants --seed 2         # another sample (in another folder)

Mutants are drawn from a seed, evenly over the lines that tests run. A copy of src in the folder is
changed, never the tree itself. A first run of each test file records which test runs which lines,
so that a mutant only sees tests that could notice it: the quick ones of its first list, then those
of the wider one. `log.jsonl` in the folder has one row a mutant; the last row of a mutant counts.
(tests/mutants.py changes *sources of the two languages*; this file changes the package.)
"""

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Tests of each file: first, and then for survivors. Those of a line are found by a first run.
LISTS = {
    "core": """test_model test_tokenwise test_tap test_decoding test_core_values
        > test_sizes programs interop test_checkpoint lens/test_attention training/test_loss""",
    "saved": """test_checkpoint_theta test_checkpoint test_headers > test_parametrizations
        test_fileio""",
    "verification": """verification/test_alone verification/test_confidence
        verification/test_tally verification/test_verify verification/test_verdict
        test_evaluation_values
        > verification/test_adversary verification/test_parallel proof/test_sure
        proof/test_batch_dependence test_own_verdicts""",
    "training": """training/test_loss training/test_optim training/test_rates
        > training/test_loop training/test_events training/test_restarts training/test_members
        training/test_state training/test_full_domain_phase""",
    "proof": """proof/test_lemmas proof/test_rounding_terms proof/test_certificate_fields
        > proof/test_prove proof/test_prove_damage proof/test_beyond proof/test_beyond_damage
        proof/test_two_layers proof/test_sure proof/test_own_rounding proof/test_subnormal
        proof/test_equal proof/poison""",
    "second": """proof/test_independent proof/test_independent_tasks proof/test_ball_terms
        proof/test_certificate_fields
        > proof/test_lemmas proof/test_prove_damage proof/poison proof/test_beyond_damage
        proof/test_own_rounding proof/test_subnormal""",
    "certify": """compiler/test_lemmas compiler/test_certificate compiler/test_certificate_terms
        > compiler/test_same compiler/test_attack compiler/test_damage compiler/test_poison
        compiler/test_compiler compiler/test_limits""",
}
TARGETS = {  # file: how many mutants, and its list
    f"{folder}/{name}.py": (int(n), tests)
    for folder, tests, words in (
        ("core", "core", "model 40 backend 20 decoding 15 token_tables 15"),
        ("core", "saved", "checkpoint 5 checkpoint_format 10"),
        ("verification", "verification", "evaluation 25 verifier 8 chunks 5 counts 8"),
        ("verification", "verification", "robust_eval 9"),
        ("training", "training", "loss 12 optim 15 loop 18"),
        ("proof", "proof", "checker 15 bounds 10 softmax_bounds 10 qkv_bounds 6"),
        ("proof", "proof", "affine_arithmetic 9 nonlinear_bounds 8 single_head 8"),
        ("proof/independent", "second", "checker 20 ball_arithmetic 15 interval_model 15"),
        ("compiler/certify", "certify", "checker 14 heads 9 counting_heads 8 neurons 6"),
        ("compiler/certify", "certify", "mlp_output_bounds 6 floats 6 equivalence 3"),
    )
    for name, n in zip(words.split()[::2], words.split()[1::2], strict=True)
}
NAMED = [  # mutants that must never survive: file, text, what it becomes
    ("training/loop.py", "1 - self.recipe.ema)", "1 - self.recipe.ema**2)"),
    ("training/loss.py", "** self.recipe.focal", "** (self.recipe.focal / 2)"),
    ("training/loss.py", "(1 - (-nll).exp()).detach()", "(1 - (-nll).exp())"),
    ("training/loss.py", "(1 - (-nll).exp()).detach()", "(-nll).exp().detach()"),
    (
        "compiler/certify/checker.py",
        "            total += float(np.abs(self.code(v).sum(1)).max())\n",
        "            pass\n",
    ),
]
SECONDS = (8.0, 20.0)  # of tests of each list that a mutant sees: of the processor, as first run
SWAPS: dict[type, list[type]] = {
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt], ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.In: [ast.NotIn],
    ast.NotIn: [ast.In], ast.Is: [ast.IsNot], ast.IsNot: [ast.Is], ast.And: [ast.Or],
    ast.Or: [ast.And], ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Div],
    ast.Div: [ast.Mult], ast.FloorDiv: [ast.Mult], ast.Mod: [ast.FloorDiv], ast.Pow: [ast.Mult],
    ast.BitAnd: [ast.BitOr], ast.BitOr: [ast.BitAnd], ast.LShift: [ast.RShift],
    ast.RShift: [ast.LShift],
}  # fmt: skip
PAIRS = ["min max", "minimum maximum", "fmin fmax", "argmin argmax", "any all", "floor ceil"]
NAMES = {a: b for pair in PAIRS for a, b in (pair.split(), pair.split()[::-1])}


# ── mutants ────────────────────────────────────────────────────────────────────────────────────
def changes(node: ast.AST) -> Iterator[str]:
    """Yield the source of each mutation of a node."""

    def other(**fields: object) -> str:
        new = copy.copy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return ast.unparse(ast.fix_missing_locations(new))

    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for kind in SWAPS[type(op)]:
                yield f"({other(ops=[*node.ops[:i], kind(), *node.ops[i + 1 :]])})"
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)):
        for kind in SWAPS.get(type(node.op), []):
            new = other(op=kind())
            yield new if isinstance(node, ast.AugAssign) else f"({new})"
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield f"({ast.unparse(node.operand)})"
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield str(not node.value)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        x = node.value
        yield from (f"({y})" for y in dict.fromkeys((x + 1, x - 1, 2 * x, 0 * x)) if y != x)
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield "test"  # its place is that of the test: see `places`
    if isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield "return None"
    if isinstance(node, ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "pass"
    if isinstance(node, ast.Name) and node.id in NAMES and isinstance(node.ctx, ast.Load):
        yield NAMES[node.id]
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield other(attr=NAMES[node.attr])


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Nodes and what each may become; not in annotations, decorators, messages and docstrings."""
    todo = [tree]
    while todo:
        node = todo.pop()
        for new in changes(node):
            if new == "test":
                yield node.test, f"(not ({ast.unparse(node.test)}))"  # type: ignore[attr-defined]
            else:
                yield node, new
        if isinstance(node, ast.Slice):
            for bound in filter(None, (node.lower, node.upper)):
                yield bound, f"({ast.unparse(bound)}) + 1"
        skipped = {"annotation", "returns", "decorator_list", "exc"}
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if name not in skipped and isinstance(child, ast.AST):
                    todo += [] if isinstance(child, ast.JoinedStr) else [child]


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, what changes, the whole text) of all mutants of a file."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for node, new in places(ast.parse(source)):
        a = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        b = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        data = source.encode()
        old = " ".join(data[a:b].decode().split())
        text = (data[:a] + new.encode() + data[b:]).decode()
        yield node.lineno, f"{old} → {new}", text  # type: ignore[attr-defined]


def sample(source: str, lines: set[int], n: int, seed: str) -> list[tuple[int, str, str]]:
    """n mutants, evenly over these lines."""
    rng, by_line = random.Random(seed), dict[int, list[tuple[int, str, str]]]()
    for mutant in mutants(source):
        if mutant[0] in lines:
            by_line.setdefault(mutant[0], []).append(mutant)
    chosen: list[tuple[int, str, str]] = []
    while len(chosen) < n and by_line:
        few = sorted(by_line)
        k, first = min(n - len(chosen), len(few)), rng.random()
        for line in [few[int((i + first) * len(few) / k) % len(few)] for i in range(k)]:
            own = by_line[line]
            chosen.append(own.pop(rng.randrange(len(own))))
            if not own:
                del by_line[line]
    return sorted(chosen)


# ── tests ──────────────────────────────────────────────────────────────────────────────────────
class Watcher:
    """A plugin of pytest: which tests fail, how long each takes, and (`traced`) which lines run."""

    def __init__(self, traced: dict[str, str]) -> None:
        self.traced, self.failed, self.tests = traced, list[str](), dict[str, dict]()
        self.lines: dict[str, set[int]] = {}
        self.calls: dict[object, int] = {}

    def trace(self, frame, event, arg):
        file = self.traced.get(frame.f_code.co_filename)
        if file is None:
            return None
        self.calls[frame.f_code] = self.calls.get(frame.f_code, 0) + 1
        if self.calls[frame.f_code] > 60:  # it has had its chance, and tracing is slow
            return None
        seen = self.lines.setdefault(file, set())

        def local(frame, event, arg):
            seen.add(frame.f_lineno)
            return local

        return local

    def pytest_runtest_logstart(self, nodeid):
        self.lines, self.calls, self.began = {}, {}, sum(os.times()[:4])  # of processor
        if self.traced:
            sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid):
        sys.settrace(None)
        lines = {file: sorted(seen) for file, seen in self.lines.items()}
        self.tests[nodeid] = {"seconds": sum(os.times()[:4]) - self.began, "lines": lines}


def child(src: Path, tests: list[str], traced: dict[str, str], log: Path, out) -> None:
    """Runs tests in a process of their own, and sends (exit status, failed tests, tests)."""
    os.setpgid(0, 0)
    sys.path.insert(0, str(src))
    os.environ["PYTHONPATH"] = str(src)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(log.parent / "hypothesis")
    sys.dont_write_bytecode = False
    with open(log, "w") as f:
        os.dup2(f.fileno(), 1)
        os.dup2(f.fileno(), 2)
    import pytest

    import glassformer

    assert Path(glassformer.__file__).is_relative_to(src)
    watcher, more = Watcher(traced), [] if traced else ["-x"]
    plain = ["-q", "-p", "no:cacheprovider", "--tb=short", "--rootdir", str(ROOT)]
    plain += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis was imported before
    status = pytest.main([*plain, *more, *tests], plugins=[watcher])
    sys.stdout.flush()
    out.send((int(status), watcher.failed, watcher.tests))
    out.close()
    os._exit(0)


def run(src: Path, tests: list[str], folder: Path, limit: float, traced=()) -> tuple:
    """Return the result of `child`; (-1, [], {}) if it ends early, (-2, [], {}) on a timeout."""
    mine, its = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(
        target=child, args=(src, tests, dict(traced), folder / "pytest.log", its)
    )
    process.start()
    its.close()
    try:
        result = mine.recv() if mine.poll(limit) else (-2, [], {})
    except EOFError:
        result = (-1, [], {})
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return result


class Bench:
    """A copy of src, and what is known of the tests."""

    def __init__(self, folder: Path, seconds: tuple[float, float] = SECONDS) -> None:
        self.seconds = seconds
        self.folder, self.src, self.count = folder, folder / "src", 0
        self.memory: dict[str, dict[str, dict]] = {}
        shutil.rmtree(self.src, ignore_errors=True)
        shutil.copytree(ROOT / "src", self.src, ignore=shutil.ignore_patterns("__pycache__"))

    def known(self, file: str) -> dict[str, dict]:
        """The tests of a file: seconds and lines of each, by a first run or what it left."""
        if file in self.memory:
            return self.memory[file]
        path = ROOT / file
        key = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        kept = self.folder / "first" / f"{file.replace('/', '.')}.{key}.json"
        if not kept.exists():
            package = self.src / "glassformer"
            traced = {str(package / target): target for target in TARGETS}
            status, failed, tests = run(self.src, [file], self.folder, 1800, traced)
            print(f"{file}: {len(tests)} tests, status {status}, failed {failed}", flush=True)
            if status not in (0, 1, 5):
                sys.exit((self.folder / "pytest.log").read_text()[-2000:])
            kept.parent.mkdir(exist_ok=True)
            good = {name: test for name, test in tests.items() if name not in failed}
            kept.write_text(json.dumps(good))
        self.memory[file] = json.loads(kept.read_text())
        return self.memory[file]

    def files(self, words: str) -> list[str]:
        """The test files of a list; those that do not exist are left out."""
        paths = [ROOT / "tests" / word for word in words.split()]
        every = [
            q
            for p in paths
            for q in (sorted(p.rglob("test_*.py")) if p.is_dir() else [p.with_suffix(".py")])
        ]
        return [str(p.relative_to(ROOT)) for p in every if p.exists()]

    def chosen(self, words: str, target: str, line: int | None, seconds: float) -> list[str]:
        """The quickest tests that run a line (None: any of the file), of so many seconds."""
        tests = [
            (test["seconds"], name)
            for file in self.files(words)
            for name, test in self.known(file).items()
            if (lines := test["lines"].get(target)) and (line is None or line in lines)
        ]
        until = itertools.accumulate(took for took, _ in sorted(tests))
        return [name for (_, name), end in zip(sorted(tests), until, strict=True) if end < seconds]

    def try_out(self, target: str, line: int | None, text: str) -> str:
        """The test that fails with a file changed to this text, or "" if none does."""
        path = self.src / "glassformer" / target
        lists = zip(LISTS[TARGETS[target][1]].split(">"), self.seconds, strict=True)
        both = [(self.chosen(words, target, line, most), most) for words, most in lists]
        whole = path.read_text()
        self.count += 1
        path.write_text(text)
        os.utime(path, (1e9 + self.count, 1e9 + self.count))  # no compiled file is taken for its
        try:
            for tests, seconds in both:
                status, failed, _ = (0, [], {})
                if tests:
                    status, failed, _ = run(self.src, tests, self.folder, 60 + 10 * seconds)
                if status not in (0, 5):
                    why = {-1: "(the process died)", -2: "(took too long)"}
                    return failed[0] if failed else why.get(status, f"(collection: {status})")
            return ""
        finally:
            path.write_text(whole)
            os.utime(path, (1e9, 1e9))

    def lines(self, target: str) -> dict[int, bool]:
        """The lines that tests run; False: when the file is imported."""
        source = (ROOT / "src/glassformer" / target).read_text()
        within: set[int] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                body = node.body if isinstance(node.body, list) else [node.body]
                within |= {*range(body[0].lineno, (body[-1].end_lineno or 0) + 1)}
        seen: set[int] = set()
        for words in LISTS[TARGETS[target][1]].split(">"):
            for file in self.files(words):
                for test in self.known(file).values():
                    seen |= {*test["lines"].get(target, [])}
        every = set(range(1, source.count("\n") + 2))
        return {n: n in within for n in sorted((seen & within) | (every - within))}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    p.add_argument("folder", type=Path)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="")
    p.add_argument("--again", action="store_true")
    p.add_argument("--named", action="store_true")
    p.add_argument("--seconds", type=float, nargs=2, default=SECONDS)
    a = p.parse_args()
    a.folder.mkdir(exist_ok=True)
    for name in ("numpy", "torch", "pytest", "hypothesis", "flint", "safetensors.numpy"):
        importlib.import_module(name)  # once, and not in every process
    bench, log = Bench(a.folder.resolve(), a.seconds), a.folder / "log.jsonl"
    if a.named:
        for target, old, new in NAMED:
            text = (ROOT / "src/glassformer" / target).read_text()
            assert text.count(old) == 1, (target, old)
            line = text[: text.index(old)].count("\n") + 1
            killed = bench.try_out(target, line, text.replace(old, new))
            change = f"{old.strip()} → {new.strip()}"
            print(f"{target}:{line}: {change}: {killed or 'SURVIVED'}")
        return
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {(r["file"], r["line"], r["change"]): r for r in rows}
    for target in TARGETS:
        if a.only not in target:
            continue
        source, lines = (ROOT / "src/glassformer" / target).read_text(), bench.lines(target)
        again = {key for key, row in done.items() if key[0] == target and not row["killed"]}
        todo = sample(source, set(lines), TARGETS[target][0], f"{a.seed}{target}")
        if a.again:  # with other tests, the sample may be another
            todo = [m for m in mutants(source) if (target, *m[:2]) in again]
        survived = set()
        for line, change, text in todo:
            key = target, line, change
            if key in survived or (key in done and not a.again):
                continue
            began = time.perf_counter()
            killed = bench.try_out(target, line if lines.get(line, True) else None, text)
            survived |= set() if killed else {key}  # of several alike in a line, all must be killed
            done[key] = {"file": target, "line": line, "change": change, "killed": killed,
                         "seconds": round(time.perf_counter() - began, 1)}  # fmt: skip
            with open(log, "a") as f:
                f.write(json.dumps(done[key], ensure_ascii=False) + "\n")
            print(f"{target}:{line}: {change}: {killed or 'SURVIVED'}", flush=True)
    print(f"{'file':44} mutants  killed  survived  score")
    for target in TARGETS:
        if own := [r for r in done.values() if r["file"] == target]:
            killed = sum(bool(r["killed"]) for r in own)
            rest, score = len(own) - killed, 100 * killed / len(own)
            print(f"{target:44} {len(own):7} {killed:7} {rest:9} {score:5.1f}%")


if __name__ == "__main__":
    main()

"""Programs as large as the language allows compile within 2.5 GB and two minutes of processor time,
or are refused in one line beforehand.
"""

import random
import subprocess
import sys

import pytest

from glassformer import GlassformerError, compiler
from glassformer.compiler import driver
from glassformer.compiler.passes import calibrate, cost_estimate, encode
from helpers import raises

resource = pytest.importorskip("resource")  # Windows has none
MEMORY, SECONDS = 5 * 2**29, 120
MAKE = """
import sys
from glassformer import GlassformerError, compiler
try:
    print(compiler.compile(sys.stdin.read(), "large"))
except GlassformerError as e:
    print("refused:", e)
"""
LINES = [
    "emit = only(token, position == here.position - 1, default=0)",
    "emit = latest(token, token == here.token, default=0)",
    "emit = latest(token, token < here.token, default=0)",
    "emit = best(token, most=(token, position), default=0)",
    "emit = nth(token, {k}, default=0)",
    "emit = sum(token) % {V}",
    "emit = min(count(token == here.token), {V} - 1)",
    "emit = min(count(token < here.token), {V} - 1)",
    "emit = 1 if share(token == 1) > 1/2 else 0",
    "emit = 1 if any([share(token == i) > 1/2 for i in range({k})]) else 0",
    "emit = round(mean(token))",
    "emit = (token * position) % {V}",
    "emit = (token + count(token == 1)) % {V}",
    "a = latest(position, token == 1)\nd = position - a\nemit = only(token, position == here.d, "
    "default=0) if any(position < here.d) else 0",
    "def back(x):\n    return only(x, position == here.position - 1, default=0)\n" + "emit = "
    + "back(" * 20 + "token" + ")" * 20,
]  # fmt: skip


def program(line, V, T, k):
    head = f"tokens = [*range({V})]\nlength = {T}\n"
    return head + line.replace("{V}", str(V)).replace("{k}", str(k))


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def outcome(text):
    done = subprocess.run([sys.executable, "-c", MAKE], input=text, capture_output=True, text=True,
                          preexec_fn=limited, check=False)  # fmt: skip
    assert done.returncode == 0, (text, done.returncode, done.stderr[-500:])
    (line,) = done.stdout.splitlines()
    assert len(line) < 1_000
    return line


LARGE = {  # programs that took 5 to 15 GB, or minutes, in an earlier version
    program(LINES[0], 2_000, 1_000, 1): "proved in float64",
    program(LINES[5], 20, 1_000, 1): "refused: ",
    program(LINES[9], 1_999, 20, 1_999): "1,000,000",
    program(LINES[2], 2_000, 1_000, 1): "refused: ",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", LARGE)
def test_large_programs(text):
    assert LARGE[text] in outcome(text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_any_program_within_the_limits(seed):
    rng = random.Random(seed)
    V, T = (round(2 * (limit / 2) ** rng.random()) for limit in (2_000, 1_000))
    line = program(rng.choice(LINES), V, T, rng.choice([1, 2, T // 2 + 1, 200]))
    result = outcome(line)
    assert "proved in float64" in result or result.startswith("refused:")


def test_sizes_are_checked_before_compiling(monkeypatch):
    text = program(LINES[2], 6, 5, 1)
    for module, name, limit in (
        (cost_estimate, "MAX_PARAMETERS", 100), (cost_estimate, "MAX_FLOPS", 100),
        (encode, "MAX_CODE_NUMBERS", 10),
    ):  # fmt: skip
        with monkeypatch.context() as m:
            m.setattr(module, name, limit)
            with raises("bad_argument"):
                compiler.compile(text)
    monkeypatch.setattr(calibrate, "MAX_CERTIFICATE_CASES", 0)  # does not limit the first attempt
    assert "proved" in str(compiler.compile(text))


def test_the_estimate_is_a_tight_upper_bound():
    for line in LINES:
        try:
            compiled = compiler.compile(program(line, 6, 5, 3))
        except GlassformerError:
            continue
        simple = driver.simplified_program(compiled.program)[0]
        estimate = cost_estimate.estimate_size(calibrate.make_plan(simple))
        size = sum(w.size for w in compiled.model.weights.values())
        assert size <= estimate <= 3 * size, (line, size, estimate)

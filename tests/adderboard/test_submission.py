"""Submission files: alone, counted as we count, and saying what the model says when called as
the board calls them.
"""

import ast
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from cases import drawn
from glassformer import Config, Model, load, parametrizations, resolve
from glassformer.core.checkpoint import save
from glassformer.core.param_count import count
from glassformer.core.weight_shapes import array_shapes, required_shapes
from glassformer.interop import export_checked, parity
from glassformer.interop.inline import formula_source
from glassformer.leaderboard import submission as adderboard
from glassformer.leaderboard.protocol import (
    EDGE_CASES,
    GroupScore,
    adder_answers,
    check_adder,
    random_pairs,
)
from glassformer.leaderboard.submission import Adderboard, submission_source
from glassformer.leaderboard.trust import run_submission
from helpers import largest_difference, raises

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # more only get into each other's way in so small a model
    yield
    torch.set_num_threads(before)


def written(model, tmp_path):
    """The file, without the checks of export: text, and what it defines."""
    task = resolve.load_task(model)
    text = submission_source(model, task, check_adder(model, task))
    path = tmp_path / "submission.py"
    path.write_text(text)
    made = {"__name__": "submission"}
    exec(compile(text, path, "exec"), made)
    return path, text, made


def scramble(task_ref, plan="", seed=0, **choices):
    """A model of random weights, by a parametrization if one is named."""
    task = resolve.load_task(task_ref)
    T = task.batch(np.array([[10**task.digits - 1] * 2]))[0].shape[1]
    sizes = {"d_model": 6, "n_heads": 2, "d_head": 3, "d_mlp": 4, "n_layers": 2}
    config = Config(d_vocab=len(task.vocabulary), n_ctx=T, **(sizes | choices))
    rng = np.random.default_rng(seed)
    weights = {n: rng.normal(size=array_shapes(config)[n]) for n in required_shapes(config)}
    if config.norm != "none":
        weights["ln_final.w"] = rng.normal(size=config.d_model)
    if not plan:
        return Model(config, weights, task.vocabulary, task.ref)
    made = parametrizations.build_parametrization(plan)
    theta = {n: np.asarray(t) for n, t in made.init_theta(weights, rng).items()}
    theta = {n: t + rng.normal(size=t.shape) for n, t in theta.items()}
    whole = made.expand(theta, {n: w.shape for n, w in weights.items()})
    return Model(config, whole, task.vocabulary, task.ref, parametrization=made.ref, theta=theta)


def numbers_of(model, asked):
    """Return the model's own answers; -1 where an answer is not a number."""
    task = resolve.load_task(model)
    return [
        x if isinstance(x, int) else -1
        for x in adder_answers(model, task, check_adder(model, task), asked)
    ]


TINY = {"n_layers": 1, "d_model": 3, "n_heads": 1, "d_head": 4, "d_mlp": 2, "activation": "relu",
    "norm": "none",
        "positions": "rotary", "tied": True}  # fmt: skip
MODELS = [
    ("addition:digits=10", "", {}), ("addition:digits=10,order=ones", "", {"positions": "rotary",
    "norm": "rms"}),
    ("digit-addition", "", {"positions": "alibi", "qk_norm": True}),
    ("digit-addition:order=most,marks=true", "low-rank:rank=1", {"activation": "gelu_new",
    "tied": True}),
    ("digit-addition", "shared", {}), ("digit-addition", "rotated:seed=3", {"norm": "none"}),
    ("addition:digits=10,padding=none", "dense", {}), ("digit-addition", "mirror-adder", TINY),
    ("digit-addition", "mirror-adder:form=free", TINY),
]  # fmt: skip


@pytest.mark.parametrize("task,plan,choices", MODELS, ids=str)
@pytest.mark.some(4)
def test_logits_and_answers_are_ours(task, plan, choices, tmp_path):
    model = scramble(task, plan, **choices)
    path, _, made = written(model, tmp_path)
    tokens = parity.parity_batch(model).tokens[:50]
    assert largest_difference(model(tokens), Adderboard().logits(path, tokens)) < 1e-9
    net, metadata = made["build_model"]()
    assert metadata["params"] == count(model).unique == sum(p.numel() for p in net.parameters())
    assert not list(net.buffers()) and isinstance(net, torch.nn.Module)
    assert set(metadata) == {"name", "author", "params", "architecture", "tricks"}
    asked = [*EDGE_CASES, *random_pairs(10), (5, 70)]
    assert [made["add"](net, a, b) for a, b in asked] == numbers_of(model, asked)


@pytest.mark.parametrize("ref", ["adder-least", "adder-hinge", "addition:digits=10"])
@pytest.mark.some(3)
def test_our_adders_in_a_file(ref, tmp_path):
    model = load(ref)
    _, text, made = written(model, tmp_path)
    net, metadata = made["build_model"]()
    assert metadata["params"] == count(model).unique and metadata["name"] == ref
    for a, b in [*EDGE_CASES, *random_pairs(15)]:
        assert made["add"](net, a, b) == a + b
    for way in ("unique", "distinct", "strict", "bits"):
        assert f"{getattr(count(model), way):,}" in next(
            x for x in text.splitlines() if x.startswith(f"    {way}")
        )


@pytest.mark.slow
def test_a_file_stands_alone(tmp_path):
    _, text, _ = written(load("adder-hinge"), tmp_path)
    roots = {
        n.names[0].name.split(".")[0] if isinstance(n, ast.Import) else n.module
        for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.Import, ast.ImportFrom))
    }  # fmt: skip
    assert roots <= {"math", "numpy", "torch"}
    code = (
        "import submission as s; m, d = s.build_model(); print(s.add(m, 9999999999, 1), "
        "d['params'])"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}; print('glassformer' in "
        f"sys.modules)"
    )
    generation = subprocess.run(
        [sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True
    )
    assert generation.stdout == "10000000000 8\nFalse\n", generation.stderr
    assert "class Adder" in text and text.count("THETA") == 3


def test_forward_has_no_carry_and_no_loop(tmp_path):
    """The board's rule: forward is tensors in, logits out; what loops over answer tokens knows
    nothing of addition.
    """
    _, text, made = written(load("adder-least"), tmp_path)
    assert "carry" not in text.partition("def generate")[2]
    net, _ = made["build_model"]()
    assert net(torch.zeros((3, 31), dtype=torch.int64)).shape == (3, 31, 10)


@pytest.mark.parametrize("ref,made", [
    ("adder-least", "weights set by hand"),
    ("adder-10-7p.safetensors", "trained: the form by hand, its numbers fitted"),
    ("adder-10-34p.safetensors", "trained: the form by hand, its numbers fitted"),
])  # fmt: skip
def test_metadata_say_how_it_was_made(ref, made):
    assert adderboard.size_tricks(load(ref))[0] == made


def test_theta_is_really_what_the_arrays_are_made_from(tmp_path):
    _, _, made = written(load("adder-least"), tmp_path)
    net, _ = made["build_model"]()
    before = net(torch.tensor([[0, 1, 2]]))
    with torch.no_grad():
        net.theta[0] += 1
    assert not torch.equal(before, net(torch.tensor([[0, 1, 2]])))


def test_export_measures_and_says(tmp_path, monkeypatch):
    monkeypatch.setattr(adderboard, "CHECKED_PAIRS", 20)
    model = load("adder-least")
    done = export_checked(model, "adderboard", tmp_path / "mine.py")
    assert (
        done.parity < 1e-12
        and done.differ == 0
        and [p.name for p in tmp_path.iterdir()] == ["mine.py"]
    )
    assert "10 edge cases and 20 pairs" in done.notes[0] and "30 are right" in done.notes[0]
    assert any(note.startswith(f"strict {count(model).strict}: ") for note in done.notes)
    *_, v = run_submission(tmp_path / "mine.py", trust=True, num_pairs=20)
    assert (
        v.holds
        and v.edges == GroupScore(10, 10)
        and v.submission["parameters"] == count(model).unique
    )


def test_a_file_that_says_otherwise_is_not_put_in_place(tmp_path, monkeypatch):
    right, swap = adderboard.submission_source, ("digits(a), digits(b)", "digits(b), digits(5)")
    monkeypatch.setattr(adderboard, "CHECKED_PAIRS", 0)
    monkeypatch.setattr(adderboard, "submission_source", lambda *x: right(*x).replace(*swap))
    with raises("bad_argument", "0+0", "5"):
        export_checked(load("adder-least"), "adderboard", tmp_path / "x.py")
    assert not list(tmp_path.iterdir())


def test_a_lora_is_counted_with_its_base(tmp_path, monkeypatch):
    base = scramble("digit-addition")
    save(base, tmp_path / "base.safetensors")
    plan = f'lora:base="{tmp_path / "base.safetensors"}",rank=1'
    made, rng = parametrizations.build_parametrization(plan), np.random.default_rng(0)
    theta = {n: rng.normal(size=t.shape) for n, t in made.init_theta(base.weights, rng).items()}
    weights = made.expand(theta, {n: w.shape for n, w in base.weights.items()})
    model = replace(base, weights=weights, parametrization=made.ref, theta=theta)
    monkeypatch.setattr(adderboard, "sandbox_lines", lambda *_, **__: results)
    results = [
        {"event": "answer", "got": x}
        for x in numbers_of(model, [*EDGE_CASES, *random_pairs(adderboard.CHECKED_PAIRS)])
    ]
    notes = Adderboard().write(model, tmp_path / "x.py")
    assert model.parametrization in notes[-1] and f"unique {count(model).total:,}: " in notes[1]
    assert (
        largest_difference(
            model(tokens := [[1, 2, 3]]), Adderboard().logits(tmp_path / "x.py", tokens)
        )
        < 1e-9
    )
    assert count(model).total > count(model).unique


@pytest.mark.parametrize("ref,name,why", [
    ("addition:digits=3", "x.py",
    "addition"),
    ("reverse", "x.py", "expected a task that adds two numbers"),
    ("adder-least", "x.txt", "expected a name that ends in .py"),
])  # fmt: skip
def test_refusals(call, tmp_path, ref, name, why):
    status, out, err = call("export", ref, "--to", "adderboard", "--out", tmp_path / name)
    assert (
        status == 2
        and out == ""
        and why in err
        and err.count("\n") == 1
        and not list(tmp_path.iterdir())
    )


def test_refusals_of_models():
    with raises("bad_argument", "adder-least"):
        Adderboard().check(replace(load("adder-least"), task=""))
    model = scramble("digit-addition")
    W = np.full_like(model.weights["embed.W_E"], np.nan)
    with raises("unsupported", "embed.W_E"):
        Adderboard().check(replace(model, weights={**model.weights, "embed.W_E": W}))
    with raises("unsupported", "200"):
        Adderboard().check(scramble("digit-addition", d_model=200, d_mlp=400))


def test_a_formula_is_cut_to_what_it_needs():
    imports, parts, expression = formula_source("low-rank:rank=3")
    text = "\n".join(parts)
    assert expression == "LowRank(rank=3)" and not imports
    assert not any(
        word in text
        for word in ("svd", "def start", "Annotated", "Mapping", ") ->", "@parametrization")
    )
    assert "class Parametrization" in text
    least = "\n".join(formula_source("adder-least")[1])
    assert (
        least.count("def expand") == 1 and "theta_shapes" not in least
    )  # the bases' own are not reached


SHIPPED = [name for name in resolve.trained_models() if name.startswith("adder-10")]


SOME = "adder-prefix", "addition:digits=10", *SHIPPED


# One file is asked for many of the board's pairs; the models themselves are, in test_protocol.py
# and test_tiny.py.
@pytest.mark.slow
@pytest.mark.parametrize("ref,n", [("adder-least", drawn(10_000)), *((ref, 100) for ref in SOME)])
def test_a_file_passes_the_protocol(ref, n, tmp_path):
    export_checked(load(ref), "adderboard", tmp_path / "x.py")
    *_, v = run_submission(tmp_path / "x.py", trust=True, num_pairs=n)
    assert v.holds and v.edges == GroupScore(10, 10) and v.pairs == GroupScore(n, n)
    assert (
        v.submission["parameters"] == v.submission["metadata"]["params"] == count(load(ref)).unique
    )

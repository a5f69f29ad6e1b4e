"""Values above a limit are refused before any work: one line with the limit, status 2."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer import Config, Vocabulary, load, load_task, run, verify
from glassformer.circuits.edges import measure_ground_truth
from glassformer.circuits.wiring import edge_sizes
from glassformer.core.checkpoint import save
from glassformer.core.decoding import decode
from glassformer.core.model import zeros
from glassformer.lens.modular.fourier import spectrum
from glassformer.parametrizations.rotated import rotation_fixing_ones
from glassformer.registry import split_ref
from glassformer.utils import limits, workers
from glassformer.verification.chunks import ChunkedEvaluation
from glassformer.verification.chunks import run_chunks as in_parallel
from helpers import raises, random_model

HUGE = 10**17


def refused(answer):
    status, out, err = answer
    assert (
        status == 2
        and not out
        and err.startswith("error: ")
        and err.count("\n") == 1
        and len(err) < 3_000
    ), answer
    assert "defect" not in err, err
    return err


VERIFY, RUN = ("verify", "addition:digits=2"), ("run", "hello-world")
OPTIONS = [
    (*VERIFY, "--sample", 10**12, limits.MAX_SAMPLE_ROWS),
    (*VERIFY, "--sample", HUGE, limits.MAX_SAMPLE_ROWS),
    (*VERIFY, "--max-counterexamples", 10**9, limits.MAX_COUNTEREXAMPLES),
    (*VERIFY, "--search", 10**9, limits.MAX_SEARCH_ROUNDS),
    (*VERIFY, "--workers", 10**6, limits.MAX_PROCESSES),
    (*VERIFY, "--seed", 2**63, limits.MAX_SEED),
    (*RUN, "--steps", 10**12, limits.MAX_DECODED_TOKENS),
    (*RUN, "--top-k", 10**30, 2**63 - 1),
    (*RUN, "--seed", 2**63, limits.MAX_SEED),
    ("inspect", "addition", "--sample", 10**14, limits.MAX_INSPECTED_ROWS),
    ("inspect", "addition", "--seed", 2**70, limits.MAX_SEED),
    ("compare", "addition", "addition", "--sample", 10**12, limits.MAX_ROWS),
    ("compare", "addition", "addition", "--seed", 2**64, limits.MAX_SEED),
    ("ground-truth", "addition", "--seed", 2**64, limits.MAX_SEED),
]


@pytest.mark.parametrize("words", OPTIONS, ids=lambda words: " ".join(map(str, words[:-1])))
def test_options_have_an_end(call, words):
    assert str(words[-1]) in refused(call(*words[:-1])).replace(",", "")


def test_options_that_write_have_an_end(call, tmp_path):
    train = ("train", "addition:digits=2", "--out", tmp_path / "m.safetensors")
    files = ("--out", tmp_path / "m.safetensors", "--key", tmp_path / "k.json")
    obfuscate = ("obfuscate", "addition:digits=2", *files)
    spec = tmp_path / "s.toml"
    spec.write_text('task = "addition"\nrecipe = "fast"\n')
    for words, most in [
        ((*train, "--seeds", 10**9), limits.MAX_MEMBERS),
        ((*train, "--threads", 10**6), limits.MAX_PROCESSES),
        ((*train, "--seed", 2**63), limits.MAX_SEED),
        ((*obfuscate, "--seed", 2**63), limits.MAX_SEED),
        ((*obfuscate, "--noise", "1e300"), "1000"),
        (("sweep", spec, "--workers", 10**6), limits.MAX_PROCESSES),
        (("sweep", spec, "--limit", 10**12), limits.MAX_SWEEP_RUNS),
        (("ablation-study", "addition", "--seeds", 10**9), limits.MAX_MEMBERS),
        (("ablation-study", "addition", "--threads", 10**6), limits.MAX_PROCESSES),
    ]:
        assert str(most) in refused(call(*words)).replace(",", "")
    assert [p.name for p in tmp_path.iterdir()] == ["s.toml"], "nothing was written"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1"])
def test_numbers_that_are_none(call, tmp_path, number):
    refused(call("run", "hello-world", f"--temperature={number}"))
    refused(
        call(
            "export",
            "hello-world",
            "--to",
            "taotp",
            "--out",
            tmp_path / "x",
            f"--tolerance={number}",
        )
    )
    files = ("--out", tmp_path / "m.safetensors", "--key", tmp_path / "k.json")
    refused(call("obfuscate", "hello-world", *files, f"--noise={number}"))
    assert not list(tmp_path.iterdir())


SET = [
    "steps=100000000000000000",
    "d_model=1000000000",
    "n_layers=1000000000",
    "n_heads=1000000000",
    "d_mlp=100000000000",
    "d_head=1000000000",
    "batch=100000000000",
    "train_rows=100000000000",
    "test_rows=100000000000",
    "extra_positions=1000000000",
    "warmup=100000000000",
    "decay_from=100000000000",
    "decay_steps=100000000000",
    "evaluate_every=100000000000",
    "stop_after_successes=100000000000",
    "abort_after_steps=100000000000",
    "data_seed=99999999999999999999",
    "steps=1e9",
    "lr=nan",
    "curriculum=99999999999@0",
    "optional_params=" + 2_000 * "x",
    "base=inf",
    "weight_decay=-1",
]


@pytest.mark.parametrize("setting", SET, ids=lambda s: s[:30])
def test_fields_of_a_recipe_have_an_end(call, tmp_path, setting):
    output = refused(
        call("train", "addition:digits=2", "--out", tmp_path / "m.safetensors", "--set", setting)
    )
    assert setting.partition("=")[0] in output and not list(tmp_path.iterdir())


@pytest.mark.parametrize("settings, what", [
    (["d_model=65536", "n_layers=1000"], "weights"), (["batch=10000000", "n_layers=9",
    "d_model=2048"], "a batch of"),
    (["test_rows=100000000"], "100,000,000 rows"),
], ids=str)  # fmt: skip
def test_what_does_not_fit_into_memory_is_not_begun(call, tmp_path, monkeypatch, settings, what):
    monkeypatch.setattr(limits, "available_memory", lambda: 2**32)
    words = [w for s in ["data=fresh", *settings] for w in ("--set", s)]
    output = refused(
        call("train", "addition:digits=6", "--out", tmp_path / "m.safetensors", *words)
    )
    assert (
        what in output
        and "takes at least" in output
        and "4.0 GiB" in output
        and not list(tmp_path.iterdir())
    )


def test_what_fits_is_not_refused(monkeypatch):
    """The estimate is a lower bound: this run takes between one and 200 megabytes."""
    from glassformer.training import Recipe, train

    tiny = Recipe(steps=1, batch=64, test_rows=50, evaluate_every=1)
    monkeypatch.setattr(limits, "available_memory", lambda: 2**27)
    assert [e.kind for e in train(load_task("addition"), tiny)][-1] == "done"
    few = replace(
        tiny, data="draw", train_rows=20, batch=10**7
    )  # no more are read at once than there are
    assert [e.kind for e in train(load_task("addition"), few)][-1] == "done"
    monkeypatch.setattr(limits, "available_memory", lambda: 2**17)
    with raises("too_large"):
        next(iter(train(load_task("addition"), tiny)))


# ── the same from Python ───────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("option", [
    {"sample": 10**12}, {"sample": 0}, {"max_counterexamples": 10**9}, {"max_counterexamples": -1},
    {"search": 10**9}, {"workers": 10**6}, {"seed": 2**63}, {"seed": -1}, {"chunk": 10**12},
    {"sample": 1.5}, {"max_counterexamples": None, "seed": "x"}, {"workers": True},
], ids=str)  # fmt: skip
def test_verify(option):
    model = load("addition:digits=1")
    with raises("bad_argument", "verify", next(iter(option))):
        verify(model, load_task(model), **option)


def test_training():
    from glassformer.training import Recipe, train

    task = load_task("addition")
    with raises("bad_argument", "seeds", "1,000"):
        next(iter(train(task, Recipe(), range(10**6))))
    with raises("bad_argument", "seed", 2**63):
        next(iter(train(task, Recipe(), [2**63])))
    with raises("bad_argument", "threads"):
        next(iter(train(task, Recipe(), threads=10**6)))
    for field in ("train_rows", "lr", "base", "steps"):
        with raises("bad_argument", field):
            Recipe(**{field: 10**400})


def test_decoding():
    model = random_model()
    for options in (
        {"steps": 10**9},
        {"temperature": np.nan},
        {"temperature": np.inf},
        {"top_k": 0},
        {"steps": -1},
    ):
        with raises("bad_argument", "decoding", *options):
            decode(model, [0, 1], **({"steps": 1} | options), rng=np.random.default_rng(0))
    cold = decode(model, [0, 1], 5, temperature=1e-320, rng=np.random.default_rng(0))
    assert cold.tolist() == decode(model, [0, 1], 5).tolist(), (
        "at next to no temperature the best token wins"
    )


def test_a_model_without_a_task_ends(monkeypatch):
    model = random_model(n_ctx=2**24, positions="rotary", n_layers=1)
    monkeypatch.setattr("glassformer.generate.DEFAULT_NEW_TOKENS", 40)
    assert len(run(model, "0").tokens) == 41
    with raises("bad_argument", "n_ctx", 10**18):
        Config(7, 10**18, 4, positions="rotary")


def test_arrays_that_do_not_fit():
    with raises("too_large", "weights"):
        zeros(Config(2**30, 4, 2**20))
    with raises("bad_argument", "numbers", 10**18):
        Vocabulary.numbers(10**18)


def test_refs_and_texts_have_an_end(call):
    for words in [
        ("run", "hello-world:message=" + 10**6 * "x"),
        ("run", 10**6 * "x"),
        ("run", "sort:" + 10**6 * "x"),
        ("run", "hello-world:message=" + 11_000 * "x"),
        ("run", 10**6 * "x" + ".safetensors"),
        ("run", 10**6 * "x" + ".taotp"),
        ("verify", "addition", "--task", 10**6 * "x"),
    ]:
        refused(call(*words))
    with raises("bad_argument", "40,000"):
        split_ref("a:b=" + 50_000 * "x")


def test_a_domain_that_no_verdict_can_name(call):
    """Python does not print numbers of more than 4,300 digits."""
    output = refused(call("verify", "min:vocab=3000000", "--task", "min:vocab=3000000,length=1000"))
    assert "10^6477" in output and "10^4000" in output
    assert "10^6477" in refused(
        call("verify", "min:vocab=3000000", "--task", "min:vocab=3000000,length=1000", "--all")
    )
    assert (
        limits.format_count(10**15) == "about 10^15"
        and limits.format_count(10**20) == "about 10^20"
        and limits.format_count(999) == "999"
    )


def test_chunks_are_not_listed(monkeypatch):
    """A domain of 10^15 rows has billions of groups of chunks; they are generated lazily."""
    model = load("addition:digits=2")
    work = ChunkedEvaluation(model, load_task(model), {"domain": 10**15}, chunk=1, keep=0)
    begun = []

    class Pool:
        _processes = None

        def __init__(self, *args): ...
        def shutdown(self, **how): ...
        def submit(self, do, group):
            begun.append(group)
            raise KeyboardInterrupt

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt):
        next(in_parallel(work, [range(10**15)], 2))
    assert begun == [range(16)]


def test_a_wide_stream_is_not_rotated(tmp_path, call):
    with raises("bad_argument", "8,192", "8,193"):
        rotation_fixing_ones(8_193, np.random.default_rng(0))
    wide = random_model(
        d_model=2_050, n_layers=1, n_heads=1, d_head=1, d_mlp=1, d_vocab=2, n_ctx=2, extras=False
    )
    path = save(wide, tmp_path / "w.safetensors")
    assert "2,048" in refused(
        call("obfuscate", path, "--out", tmp_path / "c.safetensors", "--key", tmp_path / "k.json")
    )


def test_tables_of_all_pairs_of_tokens_are_not_made():
    assert len(spectrum(np.ones((10**6, 1))).shares) == 500_000  # one column, no pairs
    with raises("too_large", "10,000,000"):
        edge_sizes(np.zeros((10**7, 1)), np.zeros((1, 10**7)), {"all": (0, 1)}, False)
    with raises("bad_argument", "heads", "2,000"):
        measure_ground_truth(random_model(n_layers=1, n_heads=2_001, d_head=1, extras=False))

"""`glassformer train` as a person uses it: what it says, what it leaves behind, and what it
says to bad input.
"""

import csv
import json
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

import glassformer as gf
from glassformer import load, save
from glassformer.core.checkpoint import digest
from glassformer.training.recipe import RECIPE_FIELDS

TASK = "addition:digits=1,order=ones"
TINY = {  # whatever the recipe by that name is tuned to
    "n_layers": 1,
    "d_model": 16,
    "d_mlp": 16,
    "embed_std": 0.1,
    "data": "split",
    "train_rows": 80,
    "test_rows": 20,
    "batch": 32,
    "loss": "answer",
    "focal": 0.0,
    "optimizer": "adamw",
    "lr": 0.02,
    "schedule": "constant",
    "warmup": 0,
    "ema": 0.0,
    "steps": 40,
    "evaluate_every": 20,
    "stop_after_successes": 0,
    "target_accuracy": 1.0,
}
PROGRAM = "import glassformer.cli.train; from glassformer.cli import main; main()"


def settings(**changes):
    fields = TINY | changes
    if fields.get("data") == "fresh":  # which has no rows to count
        del fields["train_rows"]
    words = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    return ["--recipe", "fast", *words]


def test_train_and_use(call, tmp_path):
    path = tmp_path / "a.safetensors"
    status, out, err = call("train", TASK, "--out", path, *settings(target_accuracy=0), "--json")
    got = json.loads(out)
    assert (
        status == 0
        and got["reached"]
        and got["steps"] == 40
        and got["seconds"] > 0
        and got["out"] == str(path)
    )
    assert (got["seed"], got["recipe"], got["status"], got["task"]) == (0, "fast", "done", TASK)
    learned = [e for e in got["events"] if e["kind"] == "digit learned"]
    assert learned and learned[0]["data"]["digit"] == 2  # the end token comes first
    assert f"step {learned[0]['step']}: answer token <EOS> learned" in err and err.count(
        "\n"
    ) == len(got["events"])
    assert load(str(path)).provenance["recipe"]["steps"] == 40
    status, out, _ = call(
        "verify", path, "--json"
    )  # what the run says of test rows holds for the file
    assert json.loads(out)["checked"] == 100
    assert list(tmp_path.iterdir()) == [path]


def test_the_summary(call, tmp_path):
    path = tmp_path / "a.safetensors"
    status, out, _ = call("train", TASK, "--out", path, *settings(data="draw"), "--seed", 3)
    assert (
        status == 1
        and f"{TASK}, recipe fast, seed 3: " in out
        and "(short of 100 %) after 40 steps" in out
    )
    assert (
        "of test rows were also trained on (data=draw)" in out
        and "step      20  answer token <EOS>" in out
    )
    assert out.splitlines()[-1] == f"wrote {path}"
    advice = "  to try: another --seed, --set steps=80, --set d_model=32 --set d_mlp=32"
    assert out.splitlines()[-2].startswith(advice)


def test_what_the_fields_of_a_recipe_are(call):
    status, out, _ = call("list", "fields")
    lines = out.splitlines()
    assert status == 0 and [line.partition("=")[0] for line in lines] == [*RECIPE_FIELDS]
    assert "restart_after_steps=0  restart after this many steps without success" in out
    reported = json.loads(call("list", "fields", "--json")[1])["fields"]
    assert [row["name"] for row in reported] == gf.list("fields") == [*RECIPE_FIELDS]


def test_what_was_written_is_said_and_what_was_wanted(call, tmp_path):
    files = {"--history": tmp_path / "h.csv", "--snapshots": tmp_path / "all"}
    words = [w for pair in files.items() for w in pair]
    out = call(
        "train", TASK, "--out", tmp_path / "a.safetensors", *settings(target_accuracy=9), *words
    )[1]
    assert "(short of 900 %)" in out and out.endswith(
        "".join(f"wrote {f}\n" for f in files.values())
    )


def test_without_a_recipe_a_task_is_trained_until_it_is_exact(call, tmp_path):
    path = tmp_path / "a.safetensors"
    status, out, _ = call("train", "add-digit:base=3", "--out", path)
    assert status == 0 and "add-digit:base=3, recipe auto, seed 0: 100 % of all rows" in out
    assert "to try" not in out
    assert "  exact: 0 wrong of 9\n" in out and "none held out: all rows are trained on" in out


def test_the_summary_tells_the_test_from_what_was_trained_on_all_rows(call, tmp_path):
    path, history = tmp_path / "a.safetensors", tmp_path / "h.csv"
    fields = (  # few rows are tested, and most of these right is not right on all
        "data=fresh holdout_fraction=0.05 test_rows=5 d_model=16 d_mlp=32 batch=32 steps=600 "
        "evaluate_every=10 target_accuracy=0.6 full_domain_steps=600"
    )
    words = ["--recipe", "fast", *(w for f in fields.split() for w in ("--set", f))]
    out = call("train", TASK, "--out", path, *words, "--seed", 1, "--history", history)[1]
    result = re.search(r"  exact: 0 wrong of 100; from step (\d+) on all rows were trained on", out)
    assert result and f"step {int(result[1]):>7,}  domain checked: " in out
    rows = list(csv.DictReader(history.read_text().splitlines()))
    assert [r["phase"] for r in rows] == [
        "full-domain" * (int(r["step"]) > int(result[1])) for r in rows
    ]
    assert rows[-1]["wrong"] == "0" and rows[-1]["checked"] == "100" and not rows[0]["wrong"]
    plain = call("train", TASK, "--out", path, *words, "--seed", 1, "--no-exact")[1]
    assert "stable" in plain and "exact" not in plain


def test_watching_grokking_in_a_pipe(call, tmp_path):
    """The command of the guide, on a small case: a line for each evaluation, and a history."""
    history = tmp_path / "h.jsonl"
    words = ("modular-addition:p=5,operation=-", "--recipe", "grok-seen", "--history", history)
    small = ("--set", "steps=4", "--set", "evaluate_every=2", "--out", tmp_path / "a.safetensors")
    status, out, err = call("train", *words, *small, "--watch")
    results = [json.loads(line) for line in history.read_text().splitlines()]
    steps = [row["step"] for row in results if row["kind"] == "evaluation"]
    lines = [line for line in err.splitlines() if ": loss " in line]
    assert status == 1 and steps == [2, 4] and "recipe grok-seen" in out
    assert [line.partition(":")[0] for line in lines] == ["epoch 2, step 2", "epoch 4, step 4"]
    assert all("of test rows, " in line and line.endswith("of training rows") for line in lines)


@pytest.mark.slow
def test_seeds_differ_and_repeat(call, tmp_path):
    files = [tmp_path / f"{n}.safetensors" for n in "abc"]
    for path, seed in zip(files, (1, 1, 2), strict=True):
        call("train", TASK, "--out", path, "--seed", seed, *settings())
    a, b, c = (digest(load(str(f))) for f in files)
    assert a == b != c


@pytest.mark.slow
def test_many_seeds(call, tmp_path):
    words = [
        "train",
        TASK,
        "--out",
        tmp_path / "a.safetensors",
        *settings(),
        "--seed",
        4,
        "--seeds",
        2,
    ]
    status, out, err = call(
        *words, "--history", tmp_path / "h.csv", "--figure", tmp_path / "f.png", "--json"
    )
    runs = json.loads(out)["runs"]
    files = [tmp_path / f"a-seed{s}.safetensors" for s in (4, 5)]
    assert (
        status == 1
        and [r["out"] for r in runs] == [str(f) for f in files]
        and [r["seed"] for r in runs] == [4, 5]
    )
    assert digest(load(str(files[0]))) != digest(load(str(files[1])))
    rows = [line.split(",")[:2] for line in (tmp_path / "h.csv").read_text().splitlines()[1:]]
    assert rows == [["4", "20"], ["5", "20"], ["4", "40"], ["5", "40"]]
    assert "seed 5, step 20: " in err and (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


def test_history_and_figure(call, tmp_path):
    words = ["train", TASK, "--out", tmp_path / "a.safetensors", *settings()]
    _, out, _ = call(*words, "--history", tmp_path / "h.jsonl", "--figure", tmp_path / "f.svg")
    rows = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert [r["step"] for r in rows if r["kind"] == "evaluation"] == [20, 40] and rows[-1][
        "kind"
    ] == "done"
    svg = (tmp_path / "f.svg").read_text()
    assert "1 token unknown" in svg and TASK in svg and "drew" in out


def test_a_recipe_can_be_printed_saved_and_given_back(call, tmp_path):
    status, out, _ = call("list", "recipes")
    assert status == 0 and "grok-fast" in out and "'curriculum=3@0 6@500 10@1000'" in out
    assert [r["name"] for r in json.loads(call("list", "recipes", "--json")[1])["recipes"]][:2] == [
        "book",
        "fast",
    ]
    fields = json.loads(call("list", "recipes", "fast", "--json")[1])
    (tmp_path / "mine.json").write_text(json.dumps(fields | TINY | {"name": "mine"}))
    (tmp_path / "other.toml").write_text(
        "".join(f"{n} = {json.dumps(v)}\n" for n, v in TINY.items())
    )
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    got = json.loads(
        call("train", TASK, "--out", a, "--recipe", tmp_path / "mine.json", "--json")[1]
    )
    call("train", TASK, "--out", b, "--recipe", "fast", *settings())
    assert got["recipe"] == "mine" and digest(load(str(a))) == digest(load(str(b)))
    got = json.loads(
        call("train", TASK, "--out", a, "--recipe", tmp_path / "other.toml", "--json")[1]
    )
    assert got["recipe"] == "other" and got["steps"] == 40


@pytest.mark.slow
def test_parametrization_start_and_teacher(call, tmp_path):
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("train", TASK, "--out", a, *settings(), "--parametrization", "low-rank:rank=2")
    assert load(str(a)).parametrization == "low-rank:rank=2"
    call("train", TASK, "--out", b, *settings(lr=0, weight_decay=0), "--init-from", a)
    one, two = load(str(a)).weights, load(str(b)).weights
    assert all(
        abs(one[n] - two[n]).max() < 1e-6 for n in one
    )  # nothing was learned: it is where it started
    digests = []
    for teacher in ([], ["--teacher", "addition:digits=1,order=ones"], ["--teacher", a]):
        call("train", TASK, "--out", b, *settings(), *teacher)
        digests.append(digest(load(str(b))))
    assert (
        digests[0] == digests[1] != digests[2]
    )  # a perfect teacher says what the task says; a beginner does not


def test_a_run_that_diverges(call, tmp_path):
    path = tmp_path / "a.safetensors"
    status, out, err = call(
        "train", TASK, "--out", path, *settings(lr=1e30, target_accuracy=0), "--json"
    )
    got = json.loads(out)
    assert (
        status == 1
        and got["status"] == "diverged"
        and not got["reached"]
        and got["out"] == str(path)
    )
    assert "training diverged at step" in err and "Traceback" not in err and load(str(path))


def test_list_parametrizations(call):
    assert "low-rank" in call("list", "parametrizations")[1]
    assert {"dense", "shared"} <= {
        b["name"]
        for b in json.loads(call("list", "parametrizations", "--json")[1])["parametrizations"]
    }


# ── Ctrl-C ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
def test_interrupted_and_resumed(call, tmp_path):
    """A real process and a real signal; the command that it prints ends where a run never
    stopped ends.
    """
    many = settings(steps=200, train_rows=60)
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    words = [
        "train",
        TASK,
        "--out",
        str(a),
        *many,
        "--history",
        str(tmp_path / "a.jsonl"),
        "--json",
    ]
    for _ in range(9):  # on a crowded machine a run may be over before we see that it began
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words], stdout=-1, stderr=-1, text=True
        )
        while process.poll() is None and not (
            (tmp_path / "a.jsonl").exists() and (tmp_path / "a.jsonl").read_text()
        ):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        got = json.loads(out)
        if got["status"] == "interrupted":
            break
        a.unlink()
        (tmp_path / "a.jsonl").unlink()
    assert process.returncode == 130 and got["status"] == "interrupted" and got["out"] is None, err
    assert 20 <= got["steps"] < 200 and not a.exists() and (tmp_path / "a.run.safetensors").exists()
    assert "Traceback" not in err and f"interrupted after step {got['steps']} of 200" in err
    again = err.splitlines()[-1]
    assert again == got["resume"] == "glassformer " + shlex.join(words) + " --resume"

    status, _, err = call(*shlex.split(again)[1:-1])
    assert status == 2 and "a.run.safetensors" in err and "--resume" in err
    status, out, err = call(*shlex.split(again)[1:])
    assert status in (0, 1) and err.startswith(f"resuming from step {got['steps']} of 200\n")
    assert json.loads(out)["steps"] == 200 and not (tmp_path / "a.run.safetensors").exists()
    call("train", TASK, "--out", b, *many, "--history", tmp_path / "b.jsonl")
    assert digest(load(str(a))) == digest(load(str(b)))
    lines = [(tmp_path / name).read_text().splitlines() for name in ("a.jsonl", "b.jsonl")]
    first, second = ([json.loads(line) | {"seconds": 0} for line in some] for some in lines)
    assert first == second
    status, _, err = call(*shlex.split(again)[1:])
    assert status == 2 and "its run is finished; there is nothing to resume" in err


def test_a_second_interrupt_ends_at_once(capfd):
    from glassformer.cli.train import _stop_on_signal

    before, reported = signal.getsignal(signal.SIGINT), []
    for tell in (None, lambda: reported.append(1)):  # written, or shown by who paints the screen
        with _stop_on_signal() as asked:
            assert not asked.signal_number
            asked.announce = tell or asked.announce
            signal.raise_signal(signal.SIGINT)
            assert asked.signal_number == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert reported == [1] and capfd.readouterr().err.count("Ctrl-C again") == 1


def test_advice_is_of_what_can_be_done(call, tmp_path):
    """Twice the steps, or whatever ended it; and another shape only where the recipe decides it."""
    out, short = tmp_path / "a.safetensors", settings(steps=20, evaluate_every=10)
    output = call(
        "train", TASK, "--out", out, *short, "--init-from", "addition:digits=1,order=ones"
    )[1]
    assert "to try" not in output or output.count("--set steps=40\n") == 1
    output = call("train", TASK, "--out", out, *short, "--parametrization", "shared")[1]
    assert "  to try: another --seed, --set steps=40\n" in output
    hopeless = settings(steps=20, evaluate_every=10, abort_after_steps=10, abort_below_accuracy=1.0)
    output = call("train", TASK, "--out", out, *hopeless)[1]
    assert "  to try: another --seed, --set abort_after_steps=20, --set d_model=32" in output
    few = [
        "--set",
        "steps=4",
        "--set",
        "evaluate_every=2",
        "--set",
        "target_accuracy=0",
        "--set",
        "full_domain_steps=2",
    ]
    output = call("train", "addition:digits=2", "--out", out, *few)[1]
    assert (
        "  to try: another --seed, --set full_domain_steps=4, --set d_model=64 --set d_mlp=128\n"
        in output
    )


# ── bad input: one clear line, status 2, nothing on stdout, nothing trained ────────────────────
BAD = [
    (["train", "addtion"], "addtion — no such task; did you mean addition"),
    (["train", "addition:digits=x"], "digits must be a whole number from 1 to 12, got 'x'"),
    (["train", TASK, "--recipe", "fsat"], "fsat — no such recipe; did you mean fast"),
    (["train", TASK, "--recipe", "no.json"], "no.json — cannot be read"),
    (["train", TASK, "--set", "lrr=1"], "lrr"),
    (["train", TASK, "--set", "lr"], "--set lr — expected FIELD=VALUE"),
    (["train", TASK, "--set", "lr=fast"], "lr must be a finite number from 0, got 'fast'"),
    (["train", TASK, "--set", "lr=-1"], "lr must"),
    (["train", TASK, "--set", "loss=some"], "loss must be one of answer, all, got 'some'"),
    (["train", TASK, "--parametrization", "thick"], "thick — no such parametrization"),
    (["train", TASK, "--init-from", "no.safetensors"], "no.safetensors — cannot be read"),
    (["train", TASK, "--init-from", "add-digit"], "init_from: expected the vocabulary of"),
    (["train", TASK, "--teacher", "min"], "teacher: expected the vocabulary of"),
    (["train", TASK, "--device", "abacus"], "device abacus — not available"),
    (["train", TASK, "--seeds", "0"], "number of seeds"),
    (["train", TASK, "--seeds", "2", "--resume"], "seeds"),
    (["train", TASK, "--resume"], "no run to resume"),
    (["train", TASK, "--history", "h.txt"], "h.txt"),
    (["train", TASK, "--history", "x.safetensors", "--out", "x.safetensors"],
    "x.safetensors"),
    (["train", TASK, "--history", "/no/such/folder/h.csv"], "cannot be written"),
    (["train", TASK, "--figure", "f.gif"], "f.gif"),
    (["train", TASK, "--figure", "/no/such/folder/f.png"], "cannot be written"),
    (["train", TASK, "--out", "a.bin"], "out: expected a name that ends in .safetensors"),
    (["train", TASK, "--out", "/no/such/folder/a.safetensors"],
    "/no/such/folder/a.safetensors — cannot be written"),
    (["train", TASK, "--out", "/proc/a.safetensors"], "/proc/a.safetensors — cannot be written"),
    (["train", TASK, "--out", "a.run.safetensors"], "a.run.safetensors"),
    (["train", TASK, "--set", "embed_std=1e300"], "embed.W_E"),
    (["list", "recipes", "fsat"], "did you mean fast"),
]  # fmt: skip


@pytest.mark.parametrize("words,part", BAD)
@pytest.mark.some(2)
def test_bad_input(call, tmp_path, monkeypatch, words, part):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "glassformer.training.loop.Trainer.events", lambda run: pytest.fail("training began")
    )
    more = [] if "--out" in words or words[0] == "list" else ["--out", "a.safetensors"]
    status, out, err = call(*words, *more)
    assert (
        status == 2
        and out == ""
        and part in err
        and err.startswith("error: ")
        and err.count("\n") == 1
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text,part", [
    ("{", "not JSON"), ("[1]", "expected fields of a recipe"), ('{"lr": "x"}',
    "lr must be a finite number"),
    ('{"lrr": 1}', "lrr"), ("[" * 100_000, "not JSON"), ('{"optional_params": "wings"}', "wings"),
])  # fmt: skip
def test_bad_recipe_files(call, tmp_path, text, part):
    (tmp_path / "r.json").write_text(text)
    status, out, err = call(
        "train", TASK, "--recipe", tmp_path / "r.json", "--out", tmp_path / "a.safetensors"
    )
    assert (
        status == 2
        and out == ""
        and part in err
        and "r.json" in err
        and err.count("\n") == 1
        and len(err) < 2_000
    )


def test_a_history_that_exists_is_not_lost_to_a_bad_call(call, tmp_path):
    (tmp_path / "h.csv").write_text("precious")
    out, history = tmp_path / "a.safetensors", tmp_path / "h.csv"
    assert call("train", TASK, "--out", out, *settings(), "--history", history, "--resume")[0] == 2
    assert history.read_text() == "precious"


def test_another_runs_state_is_not_resumed(call, tmp_path, monkeypatch):
    from glassformer.training.loop import Trainer

    def die(run, members):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_finish", die)
    path = tmp_path / "a.safetensors"
    call("train", TASK, "--out", path, *settings())
    assert (tmp_path / "a.run.safetensors").exists()
    for other in (["--seed", "1"], ["--set", "lr=0.5"], ["--parametrization", "shared"]):
        status, out, err = call("train", TASK, "--out", path, *settings(), *other, "--resume")
        assert status == 2 and out == "" and "is of another run" in err and err.count("\n") == 1


def test_without_torch(tmp_path):
    code = f"import sys; sys.modules['torch'] = None; {PROGRAM}"
    words = [sys.executable, "-c", code, "train", TASK, "--out", "a.safetensors"]
    got = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert got.returncode == 2 and got.stdout == "" and got.stderr.count("\n") == 1
    assert "pip install 'glassformer[torch]'" in got.stderr
    words += ["--set", "stepz=3"]
    got = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert "did you mean steps" in got.stderr, "a slip is told before PyTorch is imported"


def test_without_matplotlib(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = call(
        "train", TASK, "--out", tmp_path / "a.safetensors", "--figure", tmp_path / "f.png"
    )
    assert (
        status == 2
        and out == ""
        and "pip install 'glassformer[figures]'" in err
        and err.count("\n") == 1
    )
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_the_last_phase_mends_has_reached_its_goal(call, tmp_path):
    """The summary also reports that the held-out rows fell short of the target accuracy."""
    start = tmp_path / "start.safetensors"
    save(load("addition:digits=1,order=ones").astype("float32"), start)
    fields = "data=fresh holdout_fraction=0.3 test_rows=20 steps=1 lr=0 muon_lr=0"
    fields += " target_accuracy=1.5 full_domain_steps=9"
    words = [word for field in fields.split() for word in ("--set", field)]
    words = ["train", TASK, "--out", tmp_path / "a.safetensors", "--init-from", start, *words]
    status, out, err = call(*words)
    assert status == 0 and "(short of 150 %, before the full-domain phase)" in out, (out, err)
    assert "exact: 0 wrong of 100" in out
    status, _, err = call(*words, "--set", "d_model=999")
    assert status == 2 and "d_model: expected" in err and "as in the initial model, got 999" in err

"""Consumers of a run's events, told of a made-up run: history files, lines, the live view."""

import csv
import io
import json
import os
from types import SimpleNamespace

import pytest
from rich.console import Console

import glassformer as gf
from glassformer.training.events import Event
from glassformer.training.history import HistoryFile
from glassformer.training.loop import Trainer
from glassformer.training.ui.curve import AccuracyCurve
from glassformer.training.ui.terminal import STOP_MESSAGE, LiveView, LogView
from helpers import raises


def evaluation(step, seed=0):
    shares = {"accuracy": 0.25, "train_accuracy": 0.75, "digits": [0.5, 1.0]}
    return Event(
        "evaluation", step, seed, {"step": step, "loss": 1 / step, "seconds": 2.0, **shares}
    )


TRAINING = SimpleNamespace(
    status="stable",
    to_json=lambda: {"seed": 0, "steps": 20, "accuracy": 0.25, "status": "stable", "events": []},
)
EVENTS = [
    Event("step", 5, 0, {"loss": 3.25, "of": 100}),
    evaluation(10), Event("digit learned", 10, 0, {"digit": 1, "accuracy": 1.0}),
    Event("checkpoint", 10, 0, {"path": "x"}), evaluation(20), Event("fitted", 20, 0,
    {"accuracy": 1.0}),
    Event("stable", 20, 0, {"since": 20, "accuracy": 1.0}), Event("done", 20, 0,
    {"training": TRAINING}),
]  # fmt: skip
NAMES = ["y1", "<EOS>"]


def told(consumer, events=EVENTS):
    for event in events:
        consumer(event)
    consumer.close()


def test_history_as_jsonl(tmp_path):
    told(HistoryFile(tmp_path / "h.jsonl", NAMES))
    rows = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    kinds = ["evaluation", "digit learned", "evaluation", "fitted", "stable", "done"]
    assert [r["kind"] for r in rows] == kinds and [r["step"] for r in rows] == [
        10,
        10,
        20,
        20,
        20,
        20,
    ]
    assert rows[0]["digits"] == [0.5, 1.0] and rows[0]["loss"] == 0.1 and rows[0]["seed"] == 0
    assert rows[1]["digit"] == 1 and rows[-1]["status"] == "stable"


def test_history_as_csv(tmp_path):
    told(HistoryFile(tmp_path / "h.csv", NAMES))
    rows = list(csv.DictReader((tmp_path / "h.csv").read_text().splitlines()))
    shown = [(r["step"], r["loss"], r["y1"], r["<EOS>"]) for r in rows]
    assert shown == [("10", "0.1", "0.5", "1.0"), ("20", "0.05", "0.5", "1.0")]
    assert [r["events"] for r in rows] == ["digit learned 2", "fitted; stable"]
    assert rows[0]["train_accuracy"] == "0.75" and rows[0]["seconds"] == "2.0"


def test_evaluations_by_epoch(tmp_path):
    """Ten steps of 30 rows in batches of 8: four batches are an epoch."""
    recipe = {"steps": 10, "evaluate_every": 4, "batch": 8, "d_model": 4, "d_mlp": 4}
    rows = {"train_rows": 30, "test_rows": 20}
    split = gf.fit("addition:digits=1", "fast", data="split", **rows, **recipe)
    assert [h["epoch"] for h in split.history] == [1, 2, 2.5]
    fresh = gf.fit("addition:digits=1", "fast", data="fresh", test_rows=20, **recipe)
    assert not any("epoch" in h for h in fresh.history)
    console = Console(file=io.StringIO(), width=200)
    table = HistoryFile(tmp_path / "h.csv", NAMES)
    for h in split.history:
        event = Event("evaluation", h["step"], 0, h)
        LogView(console, NAMES, show_evaluations=True)(event)
        table(event)
    table.close()
    lines = console.file.getvalue().splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "epoch 1, step 4", "epoch 2, step 8", "epoch 2.5, step 10"
    ]  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "h.csv").read_text().splitlines()))
    assert [r["epoch"] for r in rows] == ["1.0", "2.0", "2.5"]


def test_a_history_can_be_read_while_the_run_goes_on(tmp_path):
    history = HistoryFile(tmp_path / "h.jsonl", NAMES)
    history(EVENTS[1])
    assert json.loads((tmp_path / "h.jsonl").read_text())["step"] == 10
    history.close()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_resumed_history_is_that_of_a_run_never_stopped(tmp_path, kind):
    """Resuming drops events after the last saved state, and keeps each event before it once."""
    told(HistoryFile(tmp_path / f"whole.{kind}", NAMES))
    told(HistoryFile(tmp_path / f"part.{kind}", NAMES), [*EVENTS[:3], evaluation(15)])
    run = SimpleNamespace(seeds=[0], history={0: [EVENTS[1].data]}, milestones={0: [EVENTS[2]]})
    told(HistoryFile(tmp_path / f"part.{kind}", NAMES, Trainer.past_events(run)), EVENTS[3:])
    assert (tmp_path / f"part.{kind}").read_text() == (tmp_path / f"whole.{kind}").read_text()


def test_what_is_behind_a_resumed_run_is_told_in_order():
    reports, result = [EVENTS[1].data, EVENTS[4].data], [EVENTS[2], *EVENTS[5:7]]
    run = SimpleNamespace(seeds=[0], history={0: reports}, milestones={0: result})
    assert Trainer.past_events(run) == [EVENTS[i] for i in (1, 2, 4, 5, 6)]


def test_histories_that_cannot_be(tmp_path):
    with raises("bad_argument", "h.txt", ".jsonl"):
        HistoryFile(tmp_path / "h.txt", NAMES)
    with raises("not_found", tmp_path / "no" / "h.csv"):
        HistoryFile(tmp_path / "no" / "h.csv", NAMES)


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    history = HistoryFile(tmp_path / "h.jsonl", NAMES)
    history(EVENTS[1])
    before = (tmp_path / "h.jsonl").read_bytes()

    def half(file, data):
        file.write(data[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("glassformer.utils.fileio._write_all", half)
        with raises("file_error", "h.jsonl"):
            history(EVENTS[1])
    assert (tmp_path / "h.jsonl").read_bytes() == before, "half a line is taken back"
    history.close()


def test_an_old_history_is_there_until_the_new_one_is(tmp_path, monkeypatch):
    (tmp_path / "h.jsonl").write_bytes(b"old")
    monkeypatch.setattr(
        "glassformer.utils.fileio.os.fsync", lambda handle: os.stat("nowhere at all")
    )
    with raises("not_found", "h.jsonl"):
        HistoryFile(tmp_path / "h.jsonl", NAMES)
    assert (tmp_path / "h.jsonl").read_bytes() == b"old"


def console(**options):
    return Console(file=io.StringIO(), width=120, highlight=False, markup=False, **options)


def test_lines_are_of_turning_points_only():
    one, many = console(), console()
    told(LogView(one, NAMES))
    assert one.file.getvalue().splitlines() == [
        "step 10: answer token <EOS> learned (100 % right)",
        "step 20: fitted: 100 % of training rows right",
        "step 20: stable: 100 % of test rows right, successful since step 20",
    ]  # fmt: skip
    told(LogView(many, NAMES, several_seeds=True))
    assert many.file.getvalue().startswith("seed 0, step 10: ")


def test_the_live_view():
    screen = console(force_terminal=True)
    view = LiveView(screen, 100, NAMES, floor=0.9594)
    view(EVENTS[0])
    drawn = console()
    drawn.print(view)
    shown = drawn.file.getvalue()
    assert "5/100" in shown and "3.2500" in shown and "0.9594" in shown and "step 10" not in shown
    told(view, EVENTS[1:])
    drawn.print(view)
    shown = drawn.file.getvalue()
    assert (
        "20/100" in shown
        and "25.00 %" in shown
        and "75.00 %" in shown
        and "50%" in shown
        and "stable" in shown
    )
    assert "y1" in shown and "<EOS>" in shown and "step 10: answer token <EOS> learned" in shown
    assert "training" in screen.file.getvalue()


def test_the_live_view_while_all_rows_are_looked_at():
    view = LiveView(console(force_terminal=True), 100, NAMES)

    def shown(event):
        view(event)
        drawn = console()
        drawn.print(view)
        return " ".join(drawn.file.getvalue().split("\n")[0].split())

    far = {"loss": 0.5, "of": 100, "checked_rows": 40_000, "rows": 1_000_000}
    assert "training" in shown(evaluation(10)) and "10/100" in shown(evaluation(10))
    assert "checking the domain" in shown(Event("step", 20, 0, far))
    assert "40000/1000000" in shown(Event("step", 20, 0, far))
    late = evaluation(20)
    assert "full-domain phase" in shown(
        Event("evaluation", 20, 0, late.data | {"phase": "full-domain"})
    )
    after = shown(Event("step", 25, 0, {"loss": 0.5, "of": 100}))
    assert "full-domain phase" in after and "25/?" in after, "nobody knows how many more"
    view.close()


def test_the_live_view_says_that_somebody_asked_it_to_end():
    asked = []
    view = LiveView(console(force_terminal=True), 100, NAMES, stop_requested=lambda: len(asked))
    told(view, EVENTS[:3])
    for signals in ([], [2]):
        asked += signals
        drawn = console()
        drawn.print(view)
        assert (drawn.file.getvalue().splitlines()[-1] == STOP_MESSAGE) == bool(asked)
    view.close()


def test_the_live_view_of_many_and_of_a_resumed_run():
    view = LiveView(console(force_terminal=True), 100, NAMES, past_events=EVENTS[:3])
    view(evaluation(20, seed=7))
    view.close()
    drawn = console()
    drawn.print(view)
    rows = [line.split()[0] for line in drawn.file.getvalue().splitlines()[2:4]]
    assert rows == ["0", "7"] and "step 10: answer" in drawn.file.getvalue()


# ── the curve ──────────────────────────────────────────────────────────────────────────────────
def grokked():
    """Evaluations of a run that groks: training rows at once, test rows late."""
    for step, trained, tested in [(10, 1.0, 0.0), (50, 1.0, 0.0), (100, 1.0, 1.0)]:
        shares = {"accuracy": tested, "train_accuracy": trained, "digits": [tested]}
        yield Event("evaluation", step, 0, {"step": step, "loss": 0.5, **shares})


def test_the_curve_as_text():
    curve = AccuracyCurve()
    assert curve.lines() == [] and curve.svg() == ""
    for event in grokked():
        curve(event)
    assert curve.lines(width=21, height=3) == [
        "100 % │  ·       ·         ●",
        "      │",
        "  0 % │  ●       ●",
        "      └" + 21 * "─",
        "       · training rows right  ● test rows right step 100",
    ]
    assert all(len(line) <= 67 for line in curve.lines())


def test_the_curve_is_of_one_member_and_goes_as_far_as_the_run():
    curve = AccuracyCurve()
    for event in [evaluation(10), evaluation(20, seed=7), evaluation(200)]:
        curve(event)
    assert [step for step, _ in curve.points["accuracy"]] == [10, 200]
    assert curve.lines()[-1].endswith("step 200"), "as far as the run, whatever its budget"


def test_the_curve_as_a_picture():
    curve = AccuracyCurve()
    for event in grokked():
        curve(event)
    picture = curve.svg()
    assert picture.count("<polyline") == 2 and "test rows right: 100.0%" in picture
    assert 'points="36.0,90.0 180.0,90.0 360.0,0.0"' in picture, "of test rows: none, none, all"


def test_who_watches_sees_the_curve_and_every_evaluation():
    view, quiet = (
        LiveView(console(force_terminal=True), 100, NAMES, show_curve=watch)
        for watch in (True, False)
    )
    for consumer in (view, quiet):
        told(consumer, grokked())
    drawn, without = console(), console()
    drawn.print(view)
    without.print(quiet)
    assert "● test rows right" in drawn.file.getvalue() and "100 % │" in drawn.file.getvalue()
    assert "●" not in without.file.getvalue()
    left = view.console.file.getvalue().rpartition("\x1b[")[2]
    assert "100 % │" in left and "training rows right" in left, (
        "what is erased takes no curve along"
    )
    log = console()
    told(LogView(log, NAMES, show_evaluations=True), EVENTS)
    assert log.file.getvalue().splitlines()[:2] == [
        "step 10: loss 0.1000, 25.00 % of test rows, 75.00 % of training rows",
        "step 10: answer token <EOS> learned (100 % right)",
    ]

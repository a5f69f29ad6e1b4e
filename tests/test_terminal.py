"""Output to the terminal and exit statuses, with hostile tokens, broken streams and signals."""

import ast
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import glassformer
from glassformer import GlassformerError, Labels, Vocabulary, api, load, save
from glassformer.cli import common
from glassformer.cli.common import SafeConsole, escape_invisible, make_table, print_json
from glassformer.cli.entry import main
from glassformer.utils import fileio
from glassformer.utils.progress import Progress

BAD = "\x1b[31m\x07\x9b5m\r\x7f\u202e\u2066\u2028\ud800"
SHOWN = r"\x1b[31m\x07\x9b5m\r\x7f\u202e\u2066\u2028\ud800"


def clean(text: str) -> bool:
    return not set(text) & set(BAD.replace("[31m", "").replace("5m", ""))


# ── what is shown and not sent ─────────────────────────────────────────────────────────────────
def test_what_a_terminal_would_obey_is_written_out():
    assert escape_invisible(BAD) == SHOWN and escape_invisible(escape_invisible(BAD)) == SHOWN
    plain = "é ≠ · 漢 😀 a\tb\nc →"
    assert escape_invisible(plain) == plain
    assert all(
        escape_invisible(chr(c)).isprintable()
        for c in (*range(9), *range(11, 32), *range(127, 160))
    )


def test_consoles_send_nothing_but_their_own_colours():
    from rich.text import Text

    console = SafeConsole(
        file=io.StringIO(), force_terminal=True, color_system="standard", width=200
    )
    console.print(BAD, style="bold")
    console.print(Text(f"{BAD}x"), end=BAD)
    console.print(make_table((BAD, "b"), [(BAD, "1")]))
    output = console.file.getvalue()
    assert output.startswith("\x1b[1m" + SHOWN + "\x1b[0m\n"), (
        "what it says is bold, what is said is not red"
    )
    for own in ("\x1b[1m", "\x1b[0m"):
        output = output.replace(own, "")
    assert clean(output) and output.count(SHOWN) == 4 and output.count(r"\x1b[31m") == 5, output


def test_json_stays_json(capsys):
    for value in ({BAD: [BAD, 1.5, None]}, {"plain": "é ≠ 漢"}, ["\ud800"]):
        print_json(value)
        output = capsys.readouterr().out
        assert json.loads(output) == value and clean(output)
    print_json("é")
    assert capsys.readouterr().out == '"é"\n', "what can be said is said"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Models whose labels, tokens, provenance and task hold what a terminal would obey."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, ref in (("labels", "add-digit"), ("tokens", "repeat-last:vocab=3")):
        model = load(ref)
        labels = model.labels
        labels = Labels(
            {BAD + n: s for n, s in labels.slots.items()}, {n: BAD + s for n,
            s in labels.heads.items()},
            {n: BAD + s for n, s in labels.neurons.items()},
        )  # fmt: skip
        model = replace(model, labels=labels, provenance={"ref": BAD, "maker": BAD})
        if name == "tokens":
            model = replace(
                model, vocabulary=Vocabulary([BAD + t for t in "abc"], sep=" "), task=""
            )
        save(model, folder / f"{name}.safetensors")
    save(replace(load("add-digit"), task=BAD), folder / "task.safetensors")
    return folder


@pytest.mark.parametrize(
    "words,status",
    [
        ("run labels 3_4 --trace", 0), ("run labels 3_4 --trace --json", 0), ("explain labels 3_4",
        0),
        ("explain labels 3_4 --json", 0), ("count labels", 0), ("ground-truth labels", 0),
        ("ground-truth labels --json", 0),
        ("ground-truth labels --out OUT/t.json", 0), ("verify labels", 0),
        ("inspect labels --only heads",
        0),
        ("inspect labels --only heads --json", 0),
        ("inspect labels --only heads --figures none --out OUT/d", 0),
        ("compare labels add-digit", 0), ("export labels --to taotp --out OUT/a.taotp", 0),
        ("count tokens", 0),
        ("run tokens a", 2), ("explain tokens", 2), ("ground-truth tokens --json", 0),
        ("verify task", 2),
        ("prove task", 2),
        ("run BAD", 2), ("run add-digit BAD", 2), ("run add-digit:BAD=1", 2),
        ("run OUT/BAD.safetensors", 2),
        ("BAD", 2), ("list BAD", 2), ("run add-digit --BAD", 2), ("verify add-digit --sample BAD",
        2),
        ("export add-digit --to safetensors --out OUT/BAD.safetensors", 0),
        ("export add-digit --to BAD --out x", 2),
    ],
)  # fmt: skip
@pytest.mark.some(3)
def test_no_command_sends_them(call, hostile, tmp_path, words, status):
    words = [w.replace("_", " ").replace("OUT", str(tmp_path)) for w in words.split()]
    words = [
        w.replace("BAD", BAD.replace("\ud800", "\udcff")) for w in words
    ]  # half a byte, as a shell gives it
    output = call(
        *(hostile / f"{w}.safetensors" if w in ("labels", "tokens", "task") else w for w in words)
    )
    assert (
        output[0] == status and clean(output[1]) and clean(output[2]) and "defect" not in output[2]
    ), output
    if "--json" in words:
        json.loads(output[1])
    if status == 2:
        assert output[1] == "" and output[2].startswith("error: ") and output[2].count("\n") == 1
    for file in tmp_path.rglob("*.json"):
        json.loads(file.read_text(encoding="utf-8"))


def test_a_name_that_looks_like_markup(call, hostile, tmp_path, monkeypatch):
    (tmp_path / "[").mkdir()
    name = tmp_path / "[" / "x].safetensors"
    name.write_bytes((hostile / "labels.safetensors").read_bytes())
    assert call("inspect", name, "--only", "heads")[0] == 0
    console = Console(file=(written := io.StringIO()), force_terminal=True, width=100)
    monkeypatch.setattr(common, "err", console)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with common.progress_bar("[/x] reading") as bar:
        bar(Progress(stage="drawing [/nothing]"))
    assert "drawing [/nothing]" in written.getvalue()


def test_nobody_prints_past_the_consoles():
    """A bare print or a console of one's own would send what is only to be shown."""
    folder, wrong = Path(glassformer.__file__).parent, []
    for path in [
        *(folder / "cli").glob("*.py"),
        folder / "guided_tour.py",
        *(folder / "training").rglob("*.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in (
                    "print",
                    "Console",
                    "rich.print",
                    "typer.echo",
                    "sys.stdout.write",
                    "sys.stderr.write",
                ):
                    wrong.append(f"{path.name}:{node.lineno} {called}")
    # gf.tour() in Python has none of the command line's, and prints nothing that a file says.
    results = [
        word
        for word in wrong
        if not (word.startswith("guided_tour.py") and word.endswith("Console"))
    ]
    assert len(wrong) == 3 and len(results) == 2, wrong
    assert all(w.startswith("common.py") and w.endswith(" print") for w in results), wrong


def test_long_messages_are_cut(call):
    for ref in (
        "x" * 5_000,
        "x" * 5_000 + ".safetensors",
        "a b " * 2_000,
        "漢" * 5_000,
        "/" * 5_000,
        "addition:" + "a=1,",
    ):
        status, out, err = call("run", ref)
        assert status == 2 and out == "" and err.count("\n") == 1 and len(err) < 1_600, err


# ── statuses ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "error,status,words",
    [
        (ValueError("a\nb\x1b"), 2,
        r"run — failed (a defect of glassformer: ValueError: a; b\x1b); set GLASS"),
        (AssertionError(), 2,
        "a defect of glassformer: AssertionError: ); set GLASSFORMER_DEBUG=1"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 2,
        "not enough memory for this"),
        (MemoryError(), 2, "not enough memory"), (RecursionError("deep"), 2, "nested too deeply"),
        (OSError(28, "No space left on device", "a.bin"), 2, "a.bin — No space left on device"),
        (GlassformerError("a — wrong"), 2, "error: a — wrong\n"), (KeyboardInterrupt(), 130,
        "error: interrupted\n"),
        (ModuleNotFoundError("no", name="torch.nn"), 2, "pip install 'glassformer[torch]'"),
        (ModuleNotFoundError("no", name="mine"), 2, "a defect"), (BrokenPipeError(), 141, ""),
    ],
)  # fmt: skip
def test_what_is_raised_is_a_line_and_a_status(call, monkeypatch, error, status, words):
    def fail(*args, **options):
        raise error

    monkeypatch.setattr(api, "run", fail)
    got, out, err = call("run", "hello-world")
    assert (got, out) == (status, "") and words in err and err.count("\n") == (1 if words else 0)


def test_where_a_defect_is(call, monkeypatch):
    monkeypatch.setattr(api, "run", lambda *a, **o: 1 // 0)
    monkeypatch.setenv("GLASSFORMER_DEBUG", "1")
    status, _, err = call("run", "hello-world")
    assert (
        status == 2
        and "Traceback" in err
        and "1 // 0" in err
        and err.splitlines()[-1].startswith("error: run — ")
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_kill(call, monkeypatch, number):
    monkeypatch.setattr(api, "run", lambda *a, **o: os.kill(os.getpid(), number))
    before = signal.signal(number, signal.SIG_DFL)  # whoever started the tests may have it ignored
    try:
        assert call("run", "hello-world") == (128 + number, "", "error: interrupted\n")
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_kill_that_is_ignored_stays_so(call, monkeypatch):
    output = SimpleNamespace(output="went on", stopped="")
    monkeypatch.setattr(api, "run", lambda *a, **o: os.kill(os.getpid(), signal.SIGHUP) or output)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert call("run", "hello-world") == (0, "went on\n", "")
    finally:
        signal.signal(signal.SIGHUP, before)


SIGNALLED = """
import os, signal, sys

seen, number, last = 0, int(sys.argv[1]), int(sys.argv[2])

def hook(event, args):
    global seen
    seen += event == "import" and "glassformer.cli" in sys.modules
    if event == "import" and seen == last:
        os.kill(os.getpid(), number)

sys.addaudithook(hook)
from glassformer.cli import main

sys.argv[:] = ["glassformer", "count", "min"]
try:
    main()
finally:
    print(seen)
"""


def signalled(number, at, tmp_path):
    """The status and the error lines of a command that gets a signal at its import number `at`."""
    code = tmp_path / "signalled.py"
    code.write_text(SIGNALLED)
    words = [sys.executable, code, str(int(number)), str(at)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False,
        # a shell's background job, and so its children, would ignore SIGINT
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    return done.returncode, done.stderr, done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.8, 0.9, 0.97])
@pytest.mark.some(4)
def test_a_signal_during_imports(tmp_path, number, share):
    status, _, text = signalled(number, -1, tmp_path)
    imports = int(text.splitlines()[-1])
    assert status == 0 and imports > 100
    status, err, _ = signalled(number, 1 + int(share * imports), tmp_path)
    assert status in (-number, 128 + number) and err in ("", "error: interrupted\n")


def test_the_package_imports_next_to_nothing():
    """The package imports little before `main`, as signal handlers are not installed by then."""
    code = "import sys; import glassformer.cli; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "typing", "typer", "glassformer.cli.entry"} & set(out.stdout.split())


class Broken(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


WORDS = ["list", "run hello-world", "count add-digit --json", "explain add-digit 3_4", "--help"]


@pytest.mark.parametrize("words", WORDS)
def test_a_reader_that_had_enough(call, monkeypatch, words):
    monkeypatch.setattr(sys, "stdout", Broken(BrokenPipeError(32, "Broken pipe")))
    status, _, err = call(*(w.replace("_", " ") for w in words.split()))
    assert status == 141 and err == ""


@pytest.mark.parametrize("words", WORDS)
def test_a_full_disk_behind_the_output(call, monkeypatch, words):
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        status, _, err = call(*(w.replace("_", " ") for w in words.split()))
        with contextlib.suppress(OSError):  # what is left in its buffer
            full.close()
    assert (
        status == 2
        and err.startswith("error: ")
        and "No space left" in err
        and err.count("\n") == 1
    )


def test_no_streams_at_all(call, monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    try:
        assert call("list")[0] == 0
        assert call("nonsense")[0] == 2
    finally:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.close()


def test_errors_that_nobody_hears(call, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Broken(OSError(28, "No space left on device")))
        assert call("nonsense")[0] == 2
    assert call("list", "things")[2].startswith("error: list 'things'"), (
        "and nothing of it comes later"
    )


SHELL = """
P='{python} -m glassformer'
$P list | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}
$P list >/dev/full; echo $?
$P run hello-world >&-; echo $?
$P nonsense 2>&-; echo $?
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
@pytest.mark.slow
def test_real_streams():
    """Broken streams in a subprocess, where Python flushes once more at exit."""
    env = {**os.environ, "PYTHONPATH": str(Path(glassformer.__file__).parents[1])}
    got = subprocess.run(
        ["bash", "-c", SHELL.format(python=sys.executable)], capture_output=True, text=True, env=env
    )
    first, *others = got.stdout.split()
    assert first in ("0", "141") and others == ["2", "0", "2"], got
    assert (
        got.stderr.startswith("error: ")
        and "No space left" in got.stderr
        and got.stderr.count("\n") == 1
    )


# ── systems ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("columns", ["0", "-5", "abc", "1", "²", "9" * 30, ""])
def test_columns_that_make_no_sense(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    console = SafeConsole(file=io.StringIO())
    console.print(make_table(("name", "means"), [("a", "something")]))
    console.print("words")
    assert console.file.getvalue().split() == ["name", "means", "a", "something", "words"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize(
    "words", ["run hello-world:message=é漢", "run hello-world:message=é漢 --json", "list claims"]
)
def test_what_cannot_be_said_is_numbered(monkeypatch, encoding, words):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding=encoding))
    monkeypatch.setattr(sys, "argv", ["glassformer", *words.split()])
    with pytest.raises(SystemExit) as end:
        main()
    sys.stdout.flush()
    text = output.getvalue().decode(encoding)
    assert end.value.code == 0
    if "--json" in words:
        assert json.loads(text)["output"] == "é漢"
    elif "é" in words:
        assert text == {"ascii": "\\xe9\\u6f22\n", "utf-8": "é漢\n"}.get(encoding, "é\\u6f22\n")


def test_devices_that_are_none(call, tmp_path):
    pytest.importorskip("torch")
    for device in ("meta", "cuda:99", "\x1b"):
        out = tmp_path / "a.safetensors"
        status, _, err = call(
            "train", "addition:digits=1,order=ones", "--device", device, "--out", out
        )
        assert status == 2 and "not available on this machine" in err and err.count("\n") == 1, (
            device,
            err,
        )
    assert list(tmp_path.iterdir()) == []


BARE = """
import sys
sys.modules["torch"] = None
from glassformer.cli import main
for words in sys.argv[1:]:
    sys.argv[1:] = words.split()
    try:
        main()
    except SystemExit as e:
        assert e.code == 2, (words, e.code)
"""


def test_without_torch(tmp_path):
    (tmp_path / "s.toml").write_text('task = "addition:digits=1"\nrecipe = "fast"\n')
    commands = [
        "train addition:digits=1 --out a.safetensors", "ablation-study addition:digits=1",
        "sweep s.toml",
        "verify add-digit --dtype bfloat16", "export add-digit --to torch --out x.py",
        "export addition:digits=10 --to adderboard --out x.py",
    ]  # fmt: skip
    got = subprocess.run(
        [sys.executable, "-c", BARE, *commands], capture_output=True, text=True, cwd=tmp_path
    )
    lines = got.stderr.splitlines()
    assert got.returncode == 0 and got.stdout == "" and len(lines) == len(commands), got.stderr
    assert all(
        line.startswith("error: ") and "pip install 'glassformer[torch]'" in line for line in lines
    ), lines
    assert [p.name for p in tmp_path.iterdir()] == ["s.toml"]


# ── one run at a time ──────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "words,held",
    [
        ("train addition:digits=1,order=ones --out OUT/a.safetensors", "a.safetensors"),
        ("verify add-digit --out OUT/v.json", "v.json"), ("sweep OUT/s.toml --out OUT/d",
        "d/results.csv"),
        ("ablation-study addition:digits=1,order=ones --only no-mlp --out OUT/d", "d/ablations"),
    ],
)  # fmt: skip
def test_a_second_run_is_refused(call, tmp_path, words, held):
    if words.split()[0] != "verify":
        pytest.importorskip("torch")
    (tmp_path / "d").mkdir()
    (tmp_path / "s.toml").write_text('task = "addition:digits=1,order=ones"\nrecipe = "fast"\n')
    before = sorted(tmp_path.rglob("*"))
    with fileio.exclusive_lock(tmp_path / held):
        status, out, err = call(*words.replace("OUT", str(tmp_path)).split())
    assert (
        status == 2 and out == "" and "another run is writing there" in err and err.count("\n") == 1
    )
    assert sorted(tmp_path.rglob("*")) == before

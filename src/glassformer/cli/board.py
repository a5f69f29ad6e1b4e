"""The command board: the leaderboard's own test, of a model or of someone's submission file."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from typer import Argument, Exit, Option

from .. import refs
from ..adderboard.protocol import THRESHOLD, BoardVerdict, board, describe
from ..adderboard.trust import Limits, submission
from ..errors import GlassformerError
from ..verification import Progress
from .common import Json, TaskName, app, err, out, print_json, progress, say, table_of
from .verify import Dtype, Keep

WORDS = {
    "cpu": "processor time", "memory": "memory", "file": "the size of files",
    "files": "open files", "processes": "processes",
}  # fmt: skip
ENDED = {  # the means by which nothing of a submission is left
    "namespace": "it and all that it started ended with a namespace of their own",
    "descendants": "it and all its descendants were ended (this system gave them no namespace of "
    "their own)",
    "group": "it and its process group were ended: on this system a process that left the group "
    "got away",
}


@app.command("board")
def board_(
    ref: Annotated[str, Argument(help="a model, or FILE.py: someone's submission")],
    task: TaskName = "",
    dtype: Dtype = "",
    keep: Keep = 10,
    trust: Annotated[bool, Option("--trust",
        help="run the code of a submission file, with limits")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """The AdderBoard's test: ten edge cases and 10,000 pairs of ten digits, always the same.

    Exit status 0 if it qualifies with all edge cases right, else 1.
    """
    is_file = ref.endswith(".py")
    unused = {"--task": task, "--dtype": dtype} if is_file else {"--trust": trust}
    if given := [option for option, value in unused.items() if value]:
        why = "someone's file is run as it is" if is_file else "it is no submission file"
        raise GlassformerError(f"board {ref} — {why}; leave out {', '.join(given)}")
    events: Iterable[Progress | BoardVerdict]
    if is_file:
        events = submission(ref, trust=trust, keep=keep)
        err.print(f"running {ref} in a process of its own: at most {Limits()}", soft_wrap=True)
    else:
        model = refs.load(ref)
        events = board(model, refs.load_task(task or model), keep=keep, dtype=dtype)
    verdict = _watch(events)
    print_json({"ref": ref, **verdict.to_json()}) if as_json else _show(ref, verdict)
    raise Exit(0 if verdict.holds else 1)


def _watch(events: Iterable[Progress | BoardVerdict]) -> BoardVerdict:
    with progress() as bar:
        line = bar.add_task("adding", total=None)
        for event in events:
            if isinstance(event, BoardVerdict):
                return event
            said = f"adding, {event.wrong:,} wrong"
            bar.update(line, total=event.todo, completed=event.done, description=said)
    raise AssertionError("a protocol ends with a verdict")


def _show(ref: str, v: BoardVerdict) -> None:
    how = f" on {v.task}, {v.dtype}" if v.task else ""
    out.print(f"{ref}{how}: ", end="", soft_wrap=True)
    out.print("qualifies" if v.qualifies else "does not qualify", style="bold", end="")
    need = f"{100 * THRESHOLD:g} % needed"
    say(f", {_percent(v)} right ({need}); {v.edges} edge cases, {v.pairs} pairs")
    for c in v.counterexamples:
        say(f"  {c['a']}+{c['b']} → {c['got']}, expected {c['expected']}")
    if v.counts:
        out.print(table_of(("parameters", "", "means"), describe(v.counts)))
    if v.submission:
        _show_submission(v.submission)
    if v.qualifies and not v.holds:
        out.print("not all edge cases are right: status 1")


def _show_submission(s: Mapping[str, Any]) -> None:
    says = {str(k): str(x) for k, x in s.get("metadata", {}).items()}
    say(f"  as it says of itself (not checked): {says.pop('params', '?')} parameters")
    for name, text in says.items():
        say(f"    {name}: {text}")
    if "parameters" in s:
        held = f"{s['parameters']:,} numbers in parameters and {s.get('buffers', 0):,} in buffers"
        say(f"  as it says when its module is counted in its own process: {held}")
    if missing := [means for name, means in WORDS.items() if name not in s["limited"]]:
        out.print(f"  this system has no limits on: {', '.join(missing)}")
    net = "a network, which this system could not take away" if s["network"] else "no network"
    say(f"  it had {net}; {ENDED.get(s['ended'], ENDED['group'])}")
    say("  whether a transformer did the adding is for you to see in its text")


def _percent(v: BoardVerdict) -> str:
    """Never rounded up to 100 %."""
    right, of = v.edges.right + v.pairs.right, v.edges.of + v.pairs.of
    return f"{right * 10_000 // of / 100:.2f} %"

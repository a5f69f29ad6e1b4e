"""The command run: what a model says."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from .. import api, coerce
from ..generate import in_one_text, meant
from ..utils.errors import GlassformerError
from ..utils.numfmt import number
from .common import Json, Ref, Seed, TaskName, app, err, out, print_json, say, table_of

if TYPE_CHECKING:
    from ..core.model import Model


@app.command("run")
def run_(
    ref: Ref,
    inputs: Annotated[list[str] | None, Argument(help="what to read, one text each; -: standard "
        "input, a text a line")] = None,
    trace: Annotated[bool,
        Option(help="each step: its top tokens, the margin, what each head read")] = False,
    steps: Annotated[int | None, Option(
        help="decode so many tokens at most")] = None,
    temperature: Annotated[float, Option(help="0: always the best token")] = 0.0,
    top_k: Annotated[int | None, Option(help="sample among the k best")] = None,
    seed: Seed = 0,
    task: TaskName = None,
    meaning: Annotated[bool, Option("--meaning",
        help="of a source: what each value is, by the interpreter; nothing is compiled")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Decode: what the model says after each input.

    A text may go on into the answer (127+458=0): then the rest is said. Where tokens have blanks
    between them, `run sort 5 3 1` reads one text; several are quoted, or come by standard input.
    """
    if meaning:
        return _meaning(ref, inputs or [""], as_json)
    model = coerce.as_model(ref, task)
    rng = coerce.as_generator(seed)
    rows = []
    for text in _texts(model, inputs or [""]):
        result = api.run(
            model, text, steps=steps, temperature=temperature, top_k=top_k, rng=rng, trace=trace
        )
        if result.stopped:
            err.print(result.stopped, soft_wrap=True)
        if as_json:
            rows.append(result.to_json() | ({"trace": result.trace} if trace else {}))
            continue
        if trace:
            _show(result.trace, model, result.tokens)
        say(result.output)
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})


def _meaning(ref: str, inputs: list[str], as_json: bool) -> None:
    """Every value of a source at every position of some texts, as the interpreter has it."""
    task = coerce.as_source_task(ref)
    rows = []
    for text in inputs:
        values, said = meant(task, text, ref)
        if as_json:
            rows.append({"input": text, "values": values, "output": said})
            continue
        wide = max(len(x) for column in values.values() for x in column)
        left = max(map(len, values))
        for name, column in values.items():
            say(f"{name:<{left}}  {' '.join(x.rjust(wide) for x in column)}")
        say(said)
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})


def _texts(model: "Model", words: list[str]) -> Iterator[str]:
    """The texts that were meant: one, if the words are tokens that a text has with blanks between
    them.
    """
    if len(words) > 1 and "-" not in words and in_one_text(model, words):
        words = [" ".join(words)]
        err.print(f'read as one text: "{words[0]}"; texts of one token each are read by -')
    for word in words:
        if word == "-":
            yield from _lines()
        else:
            yield word


def _lines() -> Iterator[str]:
    """Standard input, a text a line; lines without one are passed over."""
    try:
        yield from (text for line in sys.stdin if (text := line.strip("\r\n")).strip())
    except UnicodeDecodeError:
        raise GlassformerError("standard input — expected text in UTF-8") from None


def _show(trace: list[dict[str, Any]], model: "Model", tokens: Any) -> None:
    from ..compiler.slot_readout import first
    from ..lens.explain import read_in_words

    zero = first(model, tokens)
    table = table_of(("step", "reads", "top tokens", "margin", "heads"))
    for row in trace:
        top = "  ".join(f"{t} {number(x)}" for t, x in row["top"])
        heads = "; ".join(f"{h['name']}: {read_in_words(h['read'], 3, zero)}" for h in row["heads"])
        table.add_row(str(row["step"]), row["reads"], top, number(row["margin"]), heads)
    out.print(table)

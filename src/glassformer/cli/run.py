"""The command run: what a model says."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from .. import api, coerce
from ..generate import interpret_source, is_single_token_list
from ..utils.errors import GlassformerError
from ..utils.numfmt import format_number
from .common import Json, Ref, Seed, TaskOption, app, err, make_table, out, print_json, print_text

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
    task: TaskOption = None,
    interpret: Annotated[bool, Option("--interpret",
        help="of a source: what each value is, by the interpreter; nothing is compiled")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Decode: what the model says after each input.

    A text may go on into the answer (127+458=0): then the rest is said. Where tokens have blanks
    between them, `run sort 5 3 1` reads one text; several are quoted, or come by standard input.
    """
    if interpret:
        return _show_values(ref, inputs or [""], as_json)
    model = coerce.as_model(ref, task)
    rng = coerce.as_generator(seed)
    rows = []
    for text in _input_texts(model, inputs or [""]):
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
        print_text(result.output)
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})


def _show_values(ref: str, inputs: list[str], as_json: bool) -> None:
    """Every value of a source at every position of some texts, as the interpreter has it."""
    task = coerce.as_source_task(ref)
    rows = []
    for text in inputs:
        values, said = interpret_source(task, text, ref)
        if as_json:
            rows.append({"input": text, "values": values, "output": said})
            continue
        wide = max(len(x) for column in values.values() for x in column)
        left = max(map(len, values))
        for name, column in values.items():
            print_text(f"{name:<{left}}  {' '.join(x.rjust(wide) for x in column)}")
        print_text(said)
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})


def _input_texts(model: "Model", words: list[str]) -> Iterator[str]:
    """The texts that were meant: one, if the words are tokens that a text has with blanks between
    them.
    """
    if len(words) > 1 and "-" not in words and is_single_token_list(model, words):
        words = [" ".join(words)]
        err.print(f'read as one text: "{words[0]}"; texts of one token each are read by -')
    for word in words:
        if word == "-":
            yield from _stdin_lines()
        else:
            yield word


def _stdin_lines() -> Iterator[str]:
    """Standard input, a text a line; lines without one are passed over."""
    try:
        yield from (text for line in sys.stdin if (text := line.strip("\r\n")).strip())
    except UnicodeDecodeError:
        raise GlassformerError("standard input — expected text in UTF-8") from None


def _show(trace: list[dict[str, Any]], model: "Model", tokens: Any) -> None:
    from ..compiler.slot_readout import text_start
    from ..lens.explain import describe_read

    zero = text_start(model, tokens)
    table = make_table(("step", "reads", "top tokens", "margin", "heads"))
    for row in trace:
        top = "  ".join(f"{t} {format_number(x)}" for t, x in row["top"])
        heads = "; ".join(f"{h['name']}: {describe_read(h['read'], 3, zero)}" for h in row["heads"])
        table.add_row(str(row["step"]), row["reads"], top, format_number(row["margin"]), heads)
    out.print(table)

"""The command run: decode the output of a model."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from .. import api, coerce
from ..generate import interpret_source, is_one_input
from ..utils.errors import GlassformerError
from ..utils.numfmt import format_number
from .common import app, err, make_table, out, print_json, print_text
from .options import Json, Ref, Seed, TaskOption

if TYPE_CHECKING:
    from ..core.model import Model


@app.command("run")
def run_(
    ref: Ref,
    inputs: Annotated[list[str] | None, Argument(
        help="inputs; use - to read one input per line from standard input")] = None,
    trace: Annotated[bool, Option(
        help="show each step: top tokens, margin, and what each head read")] = False,
    steps: Annotated[int | None, Option(help="maximum number of tokens to decode")] = None,
    temperature: Annotated[float, Option(
        help="sampling temperature; 0: always the best token")] = 0.0,
    top_k: Annotated[int | None, Option(help="sample among the k best tokens")] = None,
    seed: Seed = 0,
    task: TaskOption = None,
    interpret: Annotated[bool, Option("--interpret",
        help="show each value of a source, by the interpreter; nothing is compiled")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Decode the model's output for each input.

    An input may contain the beginning of the answer (127+458=0); the rest is printed. Tokens may be
    separated by spaces: "0 4 + 0 2 =". `run sort 5 3 1` and `run add-digit 7 8` read one text;
    quote several, or use standard input.
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
            _show_trace(result.trace, model, result.tokens)
        print_text(result.output)
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})


def _show_values(ref: str, inputs: list[str], as_json: bool) -> None:
    """Run the interpreter of a source and print every value at every position."""
    task = coerce.as_source_task(ref)
    rows = []
    for text in inputs:
        values, output = interpret_source(task, text, ref)
        if as_json:
            rows.append({"input": text, "values": values, "output": output})
            continue
        width = max(len(x) for column in values.values() for x in column)
        name_width = max(map(len, values))
        for name, column in values.items():
            print_text(f"{name:<{name_width}}  {' '.join(x.rjust(width) for x in column)}")
        print_text(output)
    if as_json:
        print_json(rows[0] if len(rows) == 1 else {"runs": rows})


def _input_texts(model: "Model", words: list[str]) -> Iterator[str]:
    """Yield the input strings. Several words may form one input."""
    if len(words) > 1 and "-" not in words and is_one_input(model, words):
        words = [" ".join(words)]
        err.print(f'read as one text: "{words[0]}"; use - for several texts')
    for word in words:
        if word == "-":
            yield from _stdin_lines()
        else:
            yield word


def _stdin_lines() -> Iterator[str]:
    try:
        yield from (text for line in sys.stdin if (text := line.strip("\r\n")).strip())
    except UnicodeDecodeError:
        raise GlassformerError("standard input — expected text in UTF-8") from None


def _show_trace(trace: list[dict[str, Any]], model: "Model", tokens: Any) -> None:
    from ..compiler.slot_readout import text_start
    from ..lens.explain import describe_read

    start = text_start(model, tokens)
    table = make_table(("step", "context", "top tokens", "margin", "heads"))
    for row in trace:
        top = "  ".join(f"{t} {format_number(x)}" for t, x in row["top"])
        heads = "; ".join(
            f"{h['name']}: {describe_read(h['read'], 3, start)}" for h in row["heads"]
        )
        table.add_row(str(row["step"]), row["reads"], top, format_number(row["margin"]), heads)
    out.print(table)

"""Make a notebook of every chapter of the guide: `python docs/notebooks/make.py`.

Python is a code cell, with what it prints below it; a command after `$` is a cell of its own, run
by `!`; a block that names its file is written to it by `%%writefile`; everything else is text. A
slow cell has the tag `slow`. The tests make the notebooks again, compare them, and run them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GUIDE = HERE.parent / "guide"
# Extras that a chapter needs.
EXTRAS = {
    "01-start": "figures", "02-train": "torch,figures", "03-looking-inside": "torch,figures",
    "04-modular-addition": "torch,figures", "05-transformer-lens": "transformer-lens,gpt2,onnx",
    "06-proof": "proof,torch", "07-compile": "gpt2", "08-yours": "torch",
}  # fmt: skip
FENCE = re.compile(r"^(<!-- slow -->\n)?```(\w*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w-]+\.(?:taotp|glass|py))")  # the file name at the top of a block
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
Cell = dict[str, Any]


def markdown(text: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": text.strip()}


def code(text: str, output: str = "", slow: bool = False) -> Cell:
    outputs = [{"name": "stdout", "output_type": "stream", "text": output}] if output else []
    tags = {"tags": ["slow"]} if slow else {}
    return {"cell_type": "code", "execution_count": None, "metadata": tags, "outputs": outputs,
            "source": text.strip("\n")}  # fmt: skip


def install(extras: str) -> Cell:
    """Return the first cell of every notebook."""
    return code(f'# from a clone; most of it needs NumPy alone\n%pip install -q "../..[{extras}]"')


def from_chapter(text: str) -> Iterator[Cell]:
    """Yield the cells of a chapter in order."""
    end, before = 0, None  # `before`: the Python cell directly before a block
    for block in FENCE.finditer(text):
        between = _links(text[end : block.start()])
        if between.strip():
            yield from [before] if before else []
            yield markdown(between)
            before = None
        end = block.end()
        slow, language, body = bool(block[1]), block[2], block[3]
        named = NAMED.match(body)
        if language == "text" and before:
            yield code(before["source"], body, bool(before["metadata"]))
            before = None
            continue
        yield from [before] if before else []
        before = None
        if language in ("taotp", "glass", "python") and named:
            yield code(f"%%writefile {named[1]}\n{body}")
        elif language == "python":
            before = code(body, slow=slow)
        elif body.startswith("$ glassformer "):
            for command, output in COMMAND.findall(body):
                yield code(f"!{command}", output, slow)
        else:
            yield markdown(f"```{language}\n{body}```")
    yield from [before] if before else []
    if text[end:].strip():
        yield markdown(_links(text[end:]))


def _links(text: str) -> str:
    """Adapt links between chapters to the folder of the notebooks."""
    return re.sub(r"\]\((\d\d-[\w-]+\.md)", r"](../guide/\1", text)


def notebook(cells: list[Cell]) -> str:
    """Return the text of an .ipynb file."""
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i:02d}"
        cell["source"] = cell["source"].splitlines(keepends=True)
        for output in cell.get("outputs", []):
            output["text"] = output["text"].splitlines(keepends=True)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    top = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(top, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def notebooks() -> dict[str, str]:
    """Return the text of each notebook by file name."""
    out = {}
    for path in sorted(GUIDE.glob("[0-9]*.md")):
        title, _, rest = path.read_text("utf-8").partition("\n")
        origin = f"This is [a chapter of the guide](../guide/{path.name}), as a notebook."
        top = [markdown(f"{title}\n\n{origin}"), install(EXTRAS[path.stem])]
        cells = [*top, *from_chapter(rest)]
        out[f"{path.stem}.ipynb"] = notebook(cells)
    return out


if __name__ == "__main__":
    for name, text in notebooks().items():
        (HERE / name).write_text(text, "utf-8")
        print(f"docs/notebooks/{name}")

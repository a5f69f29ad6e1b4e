"""Arguments and options that several commands have."""

from typing import Annotated

from typer import Argument, Option

Ref = Annotated[str, Argument(metavar="REF",
    help="a program with options (addition:digits=3), lang/sort, "
    "x.safetensors, x.taotp, x.glass or x.py:NAME")]  # fmt: skip
Seed = Annotated[int, Option(help="seed of sampling, from 0")]
TaskOption = Annotated[str | None, Option(
    "--task", help="task to check against; default: the model's own")]  # fmt: skip
TaskArgument = Annotated[str, Argument(metavar="TASK",
    help="a task with options (addition:digits=3,order=ones) or mine.py:Vote")]  # fmt: skip
RecipeName = Annotated[str, Option("--recipe",
    help="a name (glassformer list recipes), FILE.json, FILE.toml or x.py:NAME; default: chosen "
    "for the task")]  # fmt: skip
Settings = Annotated[list[str] | None, Option(
    "--set", help="FIELD=VALUE: set a field of the recipe; repeatable")]  # fmt: skip
Threads = Annotated[int, Option(
    help="number of PyTorch threads; tiny models are fastest with one")]  # fmt: skip
Cluster = Annotated[str, Option(help="address of a Dask scheduler: tcp://host:port")]
Json = Annotated[bool, Option("--json", help="print one JSON object to stdout and nothing else")]
Dtype = Annotated[str, Option(help="float64, float32 or bfloat16; default: the model's own")]
MaxCounterexamples = Annotated[int, Option(help="maximum number of counterexamples")]

"""Chapter 2 of the booklet: how many parameters Hello World has, and what it prints."""

from ..runs import run
from . import claim
from .measures import counted, made


@claim("booklet-2.4-parameters", where="section 2.4", says="72 parameters", verdict="holds",
       records=72)  # fmt: skip
def parameters() -> int:
    return counted("hello-world:variant=book").total


@claim("booklet-2.4-ascii", where="section 2.4", says="807 parameters with ASCII", verdict="holds",
       records=807)  # fmt: skip
def parameters_ascii() -> int:
    return counted("hello-world:variant=book,tokenizer=ascii").total


@claim("booklet-2.4-prints", where="figure 2.9", says="prints Hello World!", verdict="holds",
       records="Hello World!")  # fmt: skip
def prints() -> str:
    return run(made("hello-world:variant=book")).output


@claim("booklet-2.1-simpleformer", where="figure 2.4",
       says="two dimensions are enough without layer norm", verdict="holds",
       records="Hello World! in 2")  # fmt: skip
def simpleformer() -> str:
    model = made("hello-world:variant=simpleformer")
    return f"{run(model).output} in {model.config.d_model}"

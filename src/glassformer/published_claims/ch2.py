"""Claims of chapter 2 of the booklet: the parameters of Hello World and its output."""

from ..generate import run
from . import Claim
from .measures import cached_count, cached_model


def simpleformer() -> str:
    model = cached_model("hello-world:variant=simpleformer")
    return f"{run(model).output} in {model.config.d_model}"


CLAIMS = [
    Claim("booklet-2.4-parameters", "section 2.4", "72 parameters", "holds", 72,
          lambda: cached_count("hello-world:variant=book").total),
    Claim("booklet-2.4-ascii", "section 2.4", "807 parameters with ASCII", "holds", 807,
          lambda: cached_count("hello-world:variant=book,tokenizer=ascii").total),
    Claim("booklet-2.4-prints", "figure 2.9", "prints Hello World!", "holds", "Hello World!",
          lambda: run(cached_model("hello-world:variant=book")).output),
    Claim("booklet-2.1-simpleformer", "figure 2.4", "two dimensions are enough without layer norm",
          "holds", "Hello World! in 2", simpleformer),
]  # fmt: skip

"""Claims of chapter 8 of the booklet, *The TAOTP Interpreter*, and its two printed programs."""

from collections.abc import Mapping
from itertools import product

import numpy as np

from ..core.decoding import decode
from . import Claim
from .measures import cached_count, cached_model


def layers_that_run() -> int:
    gains = {"gamma": 1.0, "beta": 0.0}
    layer = {"b2": [0.0, 0.0, 0.0], "ln1": gains, "ln2": gains}
    # Convert a layer like the printed loop.
    converted = {key: np.array(value) for key, value in layer.items()}
    return int(all(isinstance(converted[norm], Mapping) for norm in ("ln1", "ln2")))


def starts_that_say_hello() -> int:
    model = cached_model("figure-8.2.taotp")
    said = decode(model, np.arange(11)[:, None], model.config.n_ctx)[:, 1:]
    return sum(model.vocabulary.decode(row) == "Hello World!<eos>" for row in said)


def wrong_minima(ref: str) -> int:
    """Return the number of inputs of one to three numbers whose output is not the minimum."""
    model, wrong = cached_model(ref), 0
    for length in (1, 2, 3):
        rows = np.array(list(product(range(model.config.d_vocab), repeat=length)))
        wrong += int((model(rows, last=1)[:, -1].argmax(-1) != rows.min(1)).sum())
    return wrong


CLAIMS = [
    Claim("booklet-8.1-interpreter", "figure 8.1", "an interpreter for the language", "wrong", 0,
          layers_that_run,
          "layers whose norms can still be used after it, of 1: it makes an array of every entry "
          "of a layer, of gamma and beta too, so only programs without layers run; ours reads "
          "both forms"),
    Claim("booklet-8.2-hello-world", "figure 8.2", "HELLO WORLD as a text program", "holds", 11,
          starts_that_say_hello, "start tokens, of 11, after which it prints Hello World!"),
    Claim("booklet-8.2-parameters", "figure 8.2", "the program of section 2.4: 72 parameters",
          "holds", 72, lambda: cached_count("figure-8.2.taotp").total),
    Claim("booklet-8.3-wrong", "figure 8.3, exercise 8.3",
          "a program to reverse engineer (it is MIN)", "misleading", 3_272,
          lambda: wrong_minima("figure-8.3.taotp"),
          "inputs with a wrong minimum, of the 8,420 with one to three numbers: the printed "
          "embeddings are cut to one decimal, and eight of the twenty numbers are never said"),
    Claim("booklet-8.3-two-decimals", "figure 8.3", "(the same with two decimals)", "holds", 0,
          lambda: wrong_minima("min.taotp"), "inputs with a wrong minimum, of the same 8,420"),
]  # fmt: skip

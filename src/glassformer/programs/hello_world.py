"""Hello World: print a fixed message (chapter 2)."""

from dataclasses import replace
from typing import Literal

import numpy as np

from ..core.model import Config, Labels, Model, zeros
from ..craft import Floats, Head, Layout, layer_norm, polyline, ring, rotation
from ..registry import program
from ..tasks.message import Message
from ..utils.errors import NamedError
from .repeat_last import sign_codes

POSITION_SCALE = 1e6  # N in the book


@program("hello-world")
def hello_world(
    message: str = "Hello World!",
    tokenizer: Literal["message", "ascii"] = "message",
    variant: Literal[
        "book", "rms", "sparse", "integer", "positive", "simpleformer", "zero-pos", "difference"
    ] = "book",
    dtype: Literal["float64", "float32"] = "float64",
) -> Model:
    """Prints a fixed message."""
    task = Message(message=message, tokenizer=tokenizer)
    V = len(task.vocabulary)
    circle = rotation(V, [2 * np.pi / V])  # V 2
    make = {
        "book": lambda: _position_lookup(task, ring(V)),
        "rms": lambda: _position_lookup(task, np.sqrt(2) * circle, norm="rms"),
        "sparse": lambda: _position_lookup(task, sign_codes(V)),
        "integer": lambda: _integer_scale(task),
        "positive": lambda: _position_lookup(task, ring(V) + 2),
        "simpleformer": lambda: _position_lookup(task, circle, loud=1, norm="none", tied=False),
        "zero-pos": lambda: _successor_model(task) or _counting_model(task),
        "difference": lambda: _difference(task),
    }
    model = make[variant]().astype(dtype)
    rounding = 10 * np.finfo(dtype).eps * model.config.d_model
    if not margin(model, task) > rounding:
        what = f"{len(message):,} characters from a vocabulary of {V:,}"
        why = f"{what} are too close to each other after rounding; float64 or a shorter one may do"
        which = f"hello-world:variant={variant},dtype={dtype}"
        raise NamedError("hello-world", f"{which} — cannot print this: {why}")
    return model


def margin(model: Model, task: Message) -> float:
    """Return the minimum margin over the message.

    The input is constant, so one forward pass suffices.
    """
    logits, after = model(task.tokens[:-1]), task.tokens[1:]  # T V
    at = np.arange(len(after))
    right = logits[at, after]
    logits[at, after] = -np.inf
    return float((right - logits.max(axis=-1)).min())


def _position_lookup(
    task: Message,
    code: Floats,
    loud: float = POSITION_SCALE,
    norm: str = "layer",
    tied: bool = True,
) -> Model:
    """Return a model without layers that looks up the next token by position.

    Each position, times `loud`, holds the code of the next token, a row of `code` [V, D].
    """
    V, D = code.shape
    config = Config(V, len(task.tokens) - 1, D, n_layers=0, norm=norm, tied=tied)
    w = zeros(config)
    w["embed.W_E" if tied else "unembed.W_U"] = code if tied else code.T.copy()
    w["pos_embed.W_pos"] = loud * code[task.tokens[1:]]
    return Model(config, w, task.vocabulary, task.ref, Labels(Layout(token=D).slots))


def _difference(task: Message) -> Model:
    """Return a model whose positions hold next token − token, so that the stream is the next token.

    This is the other option of section 2.2: exact without a large factor, and wrong after any other
    token than the message's.
    """
    model, code = _position_lookup(task, ring(len(task.vocabulary))), ring(len(task.vocabulary))
    steps = code[task.tokens[1:]] - code[task.tokens[:-1]]
    return replace(model, weights={**model.weights, "pos_embed.W_pos": steps})


def _integer_scale(task: Message) -> Model:
    """Return a lookup model at the coarsest power of 2 that keeps half of the ring's margin."""
    V, scale = len(task.vocabulary), 1
    loud = 10.0 ** np.ceil(np.log10(V))  # N, the smallest power of 10 from V on
    half = 3 * (1 - np.cos(2 * np.pi / V)) / 2
    while (
        margin(model := _position_lookup(task, np.round(scale * ring(V)), loud), task)
        < scale * half
    ):
        scale *= 2
    return model


def _successor_model(task: Message) -> Model | None:
    """Return a model without positions and layers, or None if a token has several successors."""
    V, pairs = len(task.vocabulary), {*zip(task.tokens[:-1], task.tokens[1:], strict=True)}
    follows = dict(pairs)
    if len(follows) < len(pairs):
        return None
    config = Config(d_vocab=V, n_ctx=len(task.tokens) - 1, d_model=3, n_layers=0)
    w = zeros(config)
    w["unembed.W_U"] = ring(V).T.copy()
    w["embed.W_E"][list(follows)] = ring(V)[list(follows.values())]
    return Model(config, w, task.vocabulary, task.ref, Labels(Layout(token=3).slots))


def _counting_model(task: Message) -> Model:
    """Return a model without positions for any message.

    A head counts the tokens, and the MLP looks up the next token by the count.

    The slot `begin` is (1, −1) at the first token and (−1, 1) at all other tokens. A head with
    uniform attention writes the mean into `place`: at position i it is proportional to 2/(i+1) − 1,
    which is different for every i. Layer norm divides by a root of 1 + place², which keeps the
    order; so the MLP, a table of its points, can write the ring point of the next token into
    `next`. All slots sum to 0, so the last norm only rescales the ring point.
    """
    V, T = len(task.vocabulary), len(task.tokens) - 1
    layout = Layout(begin=2, place=2, next=3)
    config = Config(V, T, layout.size, d_head=2, d_mlp=T - 1, activation="relu", eps=0.0)
    w = zeros(config)
    w["embed.W_E"][:] = layout.row(begin=[-1, 1])
    w["embed.W_E"][task.tokens[0]] = layout.row(begin=[1, -1])
    w["unembed.W_U"][layout["next"]] = ring(V).T
    Head(w, 0, 0).copy(layout["begin"], layout["place"])  # uniform attention: the mean
    begin = w["embed.W_E"][task.tokens[:-1]]  # T D
    mean = layer_norm(begin)[:, layout["begin"]].cumsum(axis=0) / np.arange(1, T + 1)[:, None]
    place = layer_norm(begin + layout.row(place=mean))[:, layout["place"].start]
    neurons = polyline(place, ring(V)[task.tokens[1:]])
    read = slice(layout["place"].start, layout["place"].start + 1)
    neurons.in_stream(read, layout["next"], layout.size).write(w, 0)
    knots = np.abs(place + (neurons.b_in / neurons.W_in[0])[:, None]).argmin(axis=1)
    names = {f"0.{i}": f"turns at position {at}" for i, at in enumerate(knots)}
    labels = Labels(layout.slots, {"0.0": "the mean of begin over all so far"}, names)
    return Model(config, w, task.vocabulary, task.ref, labels)

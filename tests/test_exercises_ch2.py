"""The booklet's exercises of chapter 2. See docs/exercises.md."""

import numpy as np
import pytest

from glassformer import Config, Model, load, load_task, run
from glassformer.core.model import forward, zeros
from glassformer.core.param_count import count
from glassformer.tasks.message import Message
from glassformer.verification import verify


@pytest.mark.parametrize("vocab", [2, 10, 57])
def test_2_1_repeating_the_last_token_takes_three_numbers_a_token(vocab):
    model = load(f"repeat-last:vocab={vocab}")
    assert model.config.n_layers == 0 and count(model).total <= 3 * vocab
    assert verify(model, load_task(f"repeat-last:vocab={vocab},length=2")).wrong == 0


@pytest.mark.parametrize("vocab", [5, 10, 57])
def test_2_2_or_one_that_is_not_zero(vocab):
    model = load(f"repeat-last:vocab={vocab},variant=sparse")
    assert count(model).nonzero == vocab
    assert count(model).total == vocab * ((vocab + 1) // 2)  # the third question
    assert verify(model, load_task(f"repeat-last:vocab={vocab},length=2")).wrong == 0


def test_2_2_hello_world_with_one_number_a_token_and_a_position():
    model = load("hello-world:variant=sparse")
    assert count(model).nonzero == 11 + 13
    assert count(model).total == (11 + 13) * 6
    assert run(model).output == "Hello World!"


def train(norm, d_model, seed):
    """A tied model without layers, trained by Adam from random numbers until it prints the
    message.
    """
    import torch

    task, rng = Message(), torch.Generator().manual_seed(seed)
    config = Config(
        d_vocab=len(task.vocabulary), n_ctx=13, d_model=d_model, n_layers=0, norm=norm, tied=True
    )
    w = {
        name: torch.randn(a.shape, generator=rng).requires_grad_()
        for name, a in zeros(config).items()
    }
    tokens = torch.as_tensor(task.tokens)
    optimizer = torch.optim.Adam(w.values(), lr=0.05)
    for _ in range(2_000):
        logits = forward(config, w, tokens[None, :-1])[0]
        if (logits.argmax(-1) == tokens[1:]).all():
            break
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, tokens[1:]).backward()
        optimizer.step()
    return Model(
        config,
        {name: a.detach().double().numpy() for name, a in w.items()},
        task.vocabulary,
        task.ref,
    )


@pytest.mark.parametrize("norm,d_model,parameters", [("layer", 3, 72), ("rms", 2, 48)])
@pytest.mark.some(2)
def test_2_3_training_finds_models_as_small_as_the_hand_made_ones(norm, d_model, parameters):
    for seed in range(3):
        model = train(norm, d_model, seed)
        assert run(model).output == "Hello World!"
        assert count(model).total == parameters


def test_2_4_zero_positions_where_every_letter_has_one_successor():
    model = load("hello-world:message=Hel Word!,variant=zero-pos")
    assert not model.weights["pos_embed.W_pos"].any()
    assert model.config.n_layers == 0
    W_E, W_U = model.weights["embed.W_E"], model.weights["unembed.W_U"]
    assert np.array_equal(W_E[:-1], W_U.T[1:])  # the book's ring, rolled by one
    assert run(model).output == "Hel Word!"


def test_2_5_zero_positions_and_a_letter_with_several_successors():
    model = load("hello-world:variant=zero-pos")
    assert not model.weights["pos_embed.W_pos"].any()
    assert (model.config.n_layers, model.config.n_heads) == (1, 1)
    assert not model.weights["blocks.0.attn.W_Q"].any()  # the head looks everywhere alike
    assert run(model).output == "Hello World!"


def test_2_6_rms_norm_gives_a_dimension_back():
    model = load("hello-world:variant=rms")
    assert (model.config.norm, model.config.d_model, count(model).total) == ("rms", 2, 48)
    assert run(model).output == "Hello World!"


def test_2_7_integers():
    model = load("hello-world:variant=integer")
    assert all((w == np.round(w)).all() for w in model.weights.values())
    assert np.abs(model.weights["embed.W_E"]).max() == 6
    assert run(model).output == "Hello World!"


def test_2_8_positive_numbers():
    model = load("hello-world:variant=positive")
    assert all((w > 0).all() for w in model.weights.values())
    assert run(model).output == "Hello World!"


def test_2_1_section_the_simpleformer():
    """Not an exercise, but the chapter's warm-up: no norm, no token embedding, two dimensions."""
    model = load("hello-world:variant=simpleformer")
    assert (model.config.norm, model.config.d_model) == ("none", 2)
    assert not model.weights["embed.W_E"].any()
    assert run(model).output == "Hello World!"


def test_2_2_section_positions_that_cancel_the_token():
    """The other option: next − this token, exact, and only after the tokens of the message."""
    model, book = load("hello-world:variant=difference"), load("hello-world")
    tokens = load_task(model).tokens
    streams = model.W_E[tokens[:-1]] + model.W_pos
    np.testing.assert_allclose(streams, model.W_E[tokens[1:]], atol=1e-15)
    assert np.abs(model.W_pos).max() < 4 and np.abs(book.W_pos).max() > 1e6
    assert count(model).total == 72 and run(model).output == "Hello World!"
    other = np.full(13, tokens[3])
    assert (book(other).argmax(-1) == tokens[1:]).all()
    assert not (model(other).argmax(-1) == tokens[1:]).all()

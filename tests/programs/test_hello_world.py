"""hello-world: any message, every variant."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer import decode, load, load_task, run
from glassformer.core.param_count import count
from glassformer.programs.hello_world import hello_world, margin
from glassformer.tasks.message import MAX_MESSAGE_TOKENS, Message
from glassformer.utils.errors import ascii_name
from glassformer.verification import verify
from helpers import raises

VARIANTS = ["book", "rms", "sparse", "integer", "positive", "simpleformer", "zero-pos",
            "difference"]  # fmt: skip


def says(model, text=""):
    return run(model, text).output


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tokenizer", ["message", "ascii"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.some(5)
def test_prints_hello_world(variant, tokenizer, dtype):
    model = hello_world(variant=variant, tokenizer=tokenizer, dtype=dtype)
    assert says(model) == "Hello World!"
    assert model.dtype == dtype
    verdict = verify(model, load_task(model))
    assert (verdict.checked, verdict.wrong, verdict.exhaustive) == (1, 0, True)


@pytest.mark.slow
@given(st.text(max_size=60), st.sampled_from(VARIANTS))
@settings(max_examples=80, deadline=None)
def test_any_message(message, variant):
    assert says(hello_world(message=message, variant=variant)) == message


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_message_of_a_thousand_different_characters(variant):
    message = "".join(chr(0x4E00 + i) for i in range(1000)) + "again"
    model = hello_world(message=message, variant=variant)
    assert verify(model, load_task(model)).wrong == 0
    assert says(model, message[:995]) == message[995:]


def test_the_longest_message():
    model = hello_world(message="ab" * (MAX_MESSAGE_TOKENS // 2))
    assert margin(model, load_task(model)) > 1
    with raises("bad_argument", "4,000", "4,001"):
        hello_world(message="a" * 4001)


def test_messages_in_refs():
    for message in ("Hello, World!", 'say "a=b, c:d" \\ twice', "two\nlines", " ", "digits=3"):
        model = hello_world(message=message)
        assert says(model) == message
        assert load_task(model).ref == ascii_name(model.task)
        assert says(load(model.provenance["ref"])) == message


def test_what_was_read_does_not_matter_to_the_book_variant():
    model = load("hello-world")
    for start in range(11):
        assert model.vocabulary.decode(decode(model, [start], 13)[1:]) == "Hello World!<eos>"


def test_goes_on_from_where_the_message_is():
    assert says(load("hello-world"), "Hel") == "lo World!"
    assert says(load("hello-world:variant=zero-pos"), "Hello W") == "orld!"
    with raises("bad_argument", "'x'"):
        says(load("hello-world"), "Hex")
    with raises("bad_argument", "13"):
        says(load("hello-world"), "Hello World!H")


def test_refuses_what_it_would_get_wrong():
    message = "".join(chr(0x4E00 + i) for i in range(4000))
    with raises("bad_argument", "4,000") as e:
        hello_world(message=message, dtype="float32")
    assert len(str(e.value)) < 250  # without the message itself
    with raises("bad_argument", "dtype=float32"):
        hello_world(message="ab" * 500, variant="zero-pos", dtype="float32")
    with raises("bad_argument", "1", "255", "'€'"):
        hello_world(message="1 €", tokenizer="ascii")
    with raises("bad_argument", "1", "255", "'\\x00'"):
        hello_world(message="a\0b", tokenizer="ascii")


def test_the_margin_is_what_the_docstring_says():
    gap = 1 - np.cos(2 * np.pi / 11)
    assert margin(load("hello-world"), Message()) == pytest.approx(3 * gap, rel=1e-4)
    assert margin(load("hello-world:variant=rms"), Message()) == pytest.approx(2 * gap, rel=1e-4)


def test_counts():
    totals = {
        v: count(load(f"hello-world:variant={v}")).total
        for v in ("book", "rms", "integer", "positive")
    }
    assert totals == {"book": 72, "rms": 48, "integer": 72, "positive": 72}
    assert count(load("hello-world:tokenizer=ascii")).total == 807

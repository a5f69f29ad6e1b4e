"""Tokenizers of transformers agree with our vocabularies."""

import pytest

from glassformer import load, load_task
from glassformer.interop.tokenizer import begin_token, build_tokenizer

pytest.importorskip("tokenizers")


def test_a_compiled_models_texts_begin_with_bos():
    model = load("lang/reverse:vocab=3,length=3")
    made = build_tokenizer(model.vocabulary, begin_token(model))
    ids = made.encode("0 1 |").ids
    assert ids == load_task(model).prompt("0 1 |") and ids[0] == 0
    assert made.encode("<bos> 0 1 |").ids == ids
    assert begin_token(load("min")) == ""

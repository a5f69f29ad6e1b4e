"""Tokenizers of transformers agree with our vocabularies."""

import pytest

from glassformer import Vocabulary, load, load_task
from glassformer.interop.tokenizer import begin_token, build_tokenizer

pytest.importorskip("tokenizers")


def test_a_compiled_models_texts_begin_with_bos():
    model = load("lang/reverse:vocab=3,length=3")
    made = build_tokenizer(model.vocabulary, begin_token(model))
    ids = made.encode("0 1 |").ids
    assert ids == load_task(model).prompt("0 1 |") and ids[0] == 0
    assert made.encode("<bos> 0 1 |").ids == ids
    assert begin_token(load("min")) == ""


@pytest.mark.parametrize("text", ["5+8=", "5 + 8 =", "5 +8=", " 5+ 8 = ", "5,+,8,="])
def test_signs_need_no_spaces(text):
    vocabulary = load("modular-addition:plus=true").vocabulary
    made = build_tokenizer(vocabulary)
    assert made.encode(text).ids == [5, 114, 8, 113] == vocabulary.encode("5 + 8 =")
    assert made.encode("105+88=").ids == [105, 114, 88, 113], "numbers stay whole"
    with pytest.raises(Exception, match="UNK"):
        made.encode("113+5=")


def test_signs_within_other_tokens_are_not_cut():
    vocabulary = Vocabulary(["-1", "1", "-", "a_b", "<=", "=", "+", "_"], sep=" ")
    made = build_tokenizer(vocabulary)
    for text in ("-1 - 1", "a_b <= 1", "= + _"):
        assert made.encode(text).ids == vocabulary.encode(text)
    assert made.encode("1+a_b").ids == [1, 6, 3]
    with pytest.raises(Exception, match="UNK"):
        made.encode("1=1")  # <= contains it

"""Conversion of a vocabulary to a `tokenizers` tokenizer, for GPT-2 folders and TransformerLens."""

import re
from collections.abc import Sequence
from typing import Any

from ..compiler.embedded_source import BOS
from ..compiler.task import embedded_task
from ..core.model import Model
from ..core.vocabulary import END, Vocabulary
from .common import import_library
from .parity import matching_task


def build_tokenizer(vocabulary: Vocabulary, begin: str = "") -> Any:
    """Return a tokenizer that encodes and decodes as `vocabulary` does.

    With spaces between tokens, signs need none: "5+8=" is read as "5 + 8 =". The tokenizer prepends
    the token `begin` to every input that does not begin with it. Input outside the vocabulary
    raises an error, because there is no unknown token.
    """
    lib, texts = import_library("tokenizers"), list(vocabulary.tokens)
    result = lib.Tokenizer(lib.models.WordLevel({t: i for i, t in enumerate(texts)}, unk_token=""))
    if vocabulary.sep:
        # without a decoder, tokens are joined by spaces
        split = lib.pre_tokenizers.Split
        steps = [split(lib.Regex(r"[\s,]+"), "removed")]
        if signs := _signs(texts):
            steps.append(split(lib.Regex("|".join(map(_escape, signs))), "isolated"))
        result.pre_tokenizer = lib.pre_tokenizers.Sequence(steps)
    else:
        longest_first = sorted(texts, key=len, reverse=True)
        any_token = lib.Regex("|".join(map(_escape, longest_first)))
        result.pre_tokenizer = lib.pre_tokenizers.Split(any_token, "isolated")
        result.decoder = lib.decoders.Fuse()
    if begin:
        typed = lib.Regex(rf"^\s*{re.escape(begin)}\s*")
        result.normalizer = lib.normalizers.Replace(typed, "")
        special = [(begin, texts.index(begin))]
        result.post_processor = lib.processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=special
        )
    return result


def _signs(texts: Sequence[str]) -> list[str]:
    """Return the tokens of one sign, such as + and =, that no other token contains."""
    signs = [t for t in texts if len(t) == 1 and not t.isalnum() and t != "_"]
    return [sign for sign in signs if sum(sign in t for t in texts) == 1]


def _escape(text: str) -> str:
    """Return a regular expression that matches a text."""
    return "".join(c if c.isalnum() or c == "_" else f"\\x{{{ord(c):x}}}" for c in text)


def has_tokenizer(vocabulary: Vocabulary) -> bool:
    """Return whether `build_tokenizer` supports a vocabulary."""
    return vocabulary.sep in ("", " ")


def begin_token(model: Model) -> str:
    """Return the token that begins every input: <bos> for compiled models, else ""."""
    return BOS if embedded_task(model) else ""


def stop_token_id(model: Model) -> int | None:
    """Return the id of the token that ends an answer, or None if there is none.

    It is the task's stop token, or <eos> if the model has no task.
    """
    task = matching_task(model)
    return model.vocabulary.number_of(END) if task is None else task.stop

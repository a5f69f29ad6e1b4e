"""A vocabulary as a tokenizer of `transformers`, for GPT-2 folders and for TransformerLens."""

import re
from typing import Any

from ..compiler.embedded_source import BOS
from ..compiler.task import embedded_task
from ..core.model import Model
from ..core.vocabulary import Vocabulary
from .common import import_library
from .parity import matching_task

END_OF_TEXT = "<|endoftext|>"  # said by no model here: a text that nothing ends


def build_tokenizer(vocabulary: Vocabulary, begin: str = "") -> Any:
    """Encodes what `vocabulary.decode` writes to the same tokens, and decodes as it does. `begin`:
    the token that it puts before every text which does not begin with it.

    Tokens stand side by side, or a space is between them. A text with anything else in it is an
    error, not a guess: there is no unknown token.
    """
    lib, texts = import_library("tokenizers"), list(vocabulary.tokens)
    made = lib.Tokenizer(lib.models.WordLevel({t: i for i, t in enumerate(texts)}, unk_token=""))
    if vocabulary.sep:
        # no decoder: spaces between
        made.pre_tokenizer = lib.pre_tokenizers.Split(lib.Regex(r"[\s,]+"), "removed")
    else:

        def escaped(text: str) -> str:
            return "".join(c if c.isalnum() or c == "_" else f"\\x{{{ord(c):x}}}" for c in text)

        longest_first = sorted(texts, key=len, reverse=True)
        any_token = lib.Regex("|".join(map(escaped, longest_first)))
        made.pre_tokenizer = lib.pre_tokenizers.Split(any_token, "isolated")
        made.decoder = lib.decoders.Fuse()
    if begin:  # once, whether it is typed or not
        typed = lib.Regex(rf"^\s*{re.escape(begin)}\s*")
        made.normalizer = lib.normalizers.Replace(typed, "")
        special = [(begin, texts.index(begin))]
        made.post_processor = lib.processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=special
        )
    return made


def has_tokenizer(vocabulary: Vocabulary) -> bool:
    """Whether `tokenizer` can say it."""
    return vocabulary.sep in ("", " ")


def begin_token(model: Model) -> str:
    """The token that stands before every text that the model reads: a compiled model's <bos>."""
    return BOS if embedded_task(model) else ""


def stop_token_id(model: Model) -> int | None:
    """The token that ends an answer, if the model's task has one."""
    task = matching_task(model)
    return None if task is None else task.stop

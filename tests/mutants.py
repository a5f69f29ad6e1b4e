"""Sources of both languages with a few tokens deleted, doubled, swapped or replaced.

python tests/mutants.py 20000 7      # 20,000 mutants of each language, from seed 7
"""

import io
import random
import re
import sys
import time
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator

from glassformer import GlassformerError, taotp
from glassformer.compiler import library
from glassformer.compiler.frontend.parser import SourceReader, read

GLASS = [path.read_text("utf-8") for path in library.source_paths().values()]
TAOTP = [(taotp.EXAMPLES / name).read_text("utf-8") for name in taotp.examples()]
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[A-Za-z_]\w*|\d[\w.]*|\s+|#[^\n]*|.', re.DOTALL)
CHANGES = ["delete", "double", "swap", "any", "line", *["near"] * 5, *["alike"] * 5]
NUMBERS = ["0", "-1", "1.5", "1e400", "10" * 40, "99999", "0x10", "1j", "1/0"]
UNICODE = ["σ", "→", "\u200b", "\u202e", "é", "٣", "\x00", "\x0c", "\ufeff", "𝟙", '"\ud800"']
PYTHON = (
    "tokens length block end examples emit token position here nothing option pi None True lambda "
    "yield await def class return if else for in not and or is del global import from with while "
    "try : = == ** // % @ := ( ) [ ] { } , . ... * - ~ ; \n \n\t f'{token}' b'a' '' [] {} () "
    "count(token) best(token) x=1 tokens=[1] length=3 block=4"
)
TEXT = (
    "tokens block_size tok_emb pos_emb layers lnf ln1 ln2 Q K V P M1 b1 M2 b2 gamma beta eye zeros "
    "ones sparse ring shift task slots heads neurons : = ( ) [ ] { } , * + - / @ \n \" ' # null"
)


def words_of_glass(text: str) -> list[str]:
    """Split a source into tokens and the spaces between them."""
    lines, at, words = text.splitlines(keepends=True), (1, 0), list[str]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        words += [between(lines, at, token.start), between(lines, token.start, token.end)]
        at = token.end
    return [w for w in words if w]


def between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    (i, a), (j, b) = start, end
    rows = lines[i - 1 : j]
    if i == j:
        return rows[0][a:b] if rows else ""
    return "".join([rows[0][a:], *rows[1 : j - i], rows[j - i][:b] if len(rows) > j - i else ""])


def mutants(sources: list[list[str]], keywords: str, n: int, seed: int) -> Iterator[str]:
    """Yield n sources with one to four changes each."""
    rng = random.Random(seed)
    pool = sorted({word for words in sources for word in words if not word.isspace()})
    for _ in range(n):
        words = list(rng.choice(sources))
        for _ in range(rng.choice((1, 1, 2, 4))):
            solid = [i for i, word in enumerate(words) if not word.isspace()]
            if not solid:
                break
            i, j = rng.choice(solid), rng.choice(solid)
            change = rng.choice(CHANGES)
            if change == "delete":
                del words[i]
            elif change == "double":
                words.insert(j, words[i])
            elif change == "swap":
                words[i], words[j] = words[j], words[i]
            elif change == "line":  # copied to another place
                lines = "".join(words).splitlines(keepends=True)
                lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
                words = TOKEN.findall("".join(lines))
            elif change == "any":
                words[i] = rng.choice(rng.choice((pool, keywords.split(" "), NUMBERS, UNICODE)))
            else:  # replace a name by a name, a number by a number: often still valid
                i = rng.choice([k for k in solid if kind(words[k])] or solid)
                known = words if change == "near" else pool
                words[i] = rng.choice([w for w in known if kind(w) == kind(words[i])])
        yield "".join(words)


def kind(word: str) -> str:
    """Return the kind of a token; "" for texts, spaces and brackets."""
    if word in ("+", "-", "*", "/", "//", "%", "==", "!=", "<", ">", "<=", ">=", "and", "or"):
        return "operator"
    return "name" if word.isidentifier() else "number" if word[:1].isdigit() else ""


def read_glass(text: str) -> None:
    """Read a source like the compiler, and list its options like the server."""
    try:
        SourceReader("source", text, {}).available_options()
    except GlassformerError:
        read(text)
        raise
    read(text)


def glass(n: int, seed: int) -> Iterator[str]:
    return mutants([words_of_glass(text) for text in GLASS], PYTHON, n, seed)


def text_programs(n: int, seed: int) -> Iterator[str]:
    return mutants([TOKEN.findall(text) for text in TAOTP], TEXT, n, seed)


def foreign_errors(
    texts: Iterator[str], parse: Callable[[str], object]
) -> tuple[Counter[str], list[tuple[Exception, str]], tuple[float, str]]:
    """Return the numbers of valid and refused texts, the errors of other types with their texts,
    and the slowest text with its seconds.
    """
    counts, foreign, slowest = Counter[str](), list[tuple[Exception, str]](), (0.0, "")
    for text in texts:
        start = time.process_time()
        try:
            parse(text)
            counts["valid"] += 1
        except GlassformerError:
            counts["refused"] += 1
        except Exception as e:
            counts["foreign"] += 1
            foreign.append((e, text))
        slowest = max(slowest, (time.process_time() - start, text))
    return counts, foreign, slowest


def main(n: int, seed: int) -> None:
    import traceback

    for texts, parse in ((glass(n, seed), read_glass), (text_programs(n, seed), taotp.parse)):
        counts, foreign, slowest = foreign_errors(texts, parse)
        print(dict(counts), f"slowest {slowest[0]:.1f} s: {slowest[1][:300]!r}")
        kinds: dict[str, list[str]] = {}
        for e, text in foreign:
            frame = traceback.extract_tb(e.__traceback__)[-1]
            where = f"{type(e).__name__}: {str(e)[:80]} at {frame.filename[-40:]}:{frame.lineno}"
            kinds.setdefault(where, []).append(text)
        for where, sources in kinds.items():
            print(f"{len(sources)} × {where}\n{min(sources, key=len)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

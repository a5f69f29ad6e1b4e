"""The judge: never by examples alone, with the smallest counterexample, and nothing is executed."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from glassformer import Config, GlassformerError, Model, compiler, load, load_task, taotp
from glassformer.core.decoding import decode
from glassformer.puzzles import judge, level
from glassformer.puzzles.judge import MAX_SOLUTION_CHARACTERS, _shrink_counterexample, count_lines
from glassformer.taotp.write import write
from puzzles.measure import SOLUTIONS


def solution(name, n=1):
    kind = level(name).kind
    return (SOLUTIONS / f"{name}.{n}.{kind}").read_text("utf-8")


def changed(name, old, new, n=1):
    text = solution(name, n)
    assert old in text
    return text.replace(old, new)


# Right on every example that is shown, and wrong.
NEARLY = {
    "one-back": changed("one-back", "shift(-1 T) * T * T", "shift(-1 T)"),
    "the-largest": changed("the-largest", "-1e4", "-5"),
    "parity-source": changed(
        "parity-source", "count(token == 1) % 2", "min(count(token == 1), 3) % 2"
    ),
    "in-order": changed("in-order", "not after", "not after and position < 3"),
    "balanced": changed("balanced", "any(depth < 0)", "any(depth == -1 and position < 5)"),
    "beat-ours": changed("beat-ours", "-22.6", "-23.2"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "beat-ours")) for n in NEARLY]
)
def test_what_is_right_on_every_example_and_wrong_is_caught(name):
    asked, text = level(name), NEARLY[name]
    words = asked.task().vocabulary
    for shown, answer in asked.examples.items():
        tokens, wanted = words.encode(shown), words.encode(answer)
        if asked.kind == "taotp":
            output = decode(taotp.parse(text), tokens, len(wanted))[len(tokens) :]
        else:
            output = compiler.run(compiler.read(text), tokens)
        assert words.decode(output) == answer
    judgment = judge(asked, text)
    assert not judgment.problem and not judgment.right and not judgment.score
    assert judgment.counterexample["input"] not in asked.examples
    assert judgment.counterexample["got"] != judgment.counterexample["expected"]


def test_the_smallest_counterexample_is_the_smallest():
    """Of the parities that stop at three ones, by trying them all in Python."""
    judgment = judge(level("parity-source"), NEARLY["parity-source"])
    texts = (t for n in range(1, 11) for t in itertools.product("01", repeat=n))
    wrong = [t for t in texts if t.count("1") % 2 != min(t.count("1"), 3) % 2]
    assert judgment.wrong == len(wrong)
    assert judgment.counterexample == {"input": " ".join(wrong[0]), "expected": "0", "got": "1"}
    output = "wrong: 848 of all 2,046 questions; the smallest: 1 1 1 1 → 1, expected 0"
    assert judgment.verdict == output


def test_one_wrong_question_of_all_is_enough():
    """The very last."""
    nearly = "(1 if all(token == 1) and position == 9 else count(token == 1) % 2)"
    judgment = judge(
        level("parity-source"), changed("parity-source", "count(token == 1) % 2", nearly)
    )
    assert (judgment.wrong, judgment.checked) == (1, 2_046)
    assert judgment.counterexample == {"input": " ".join("1" * 10), "expected": "0", "got": "1"}


def test_of_weights_too():
    judgment = judge(level("the-largest"), NEARLY["the-largest"])
    by_name = {"input": "0 0 1", "expected": "1", "got": "0"}
    assert judgment.counterexample == by_name and 0 < judgment.wrong < judgment.checked == 11_110


@pytest.mark.slow
def test_a_proof_that_fails_has_a_counterexample_too():
    judgment = judge(level("beat-ours"), NEARLY["beat-ours"])
    assert judgment.verdict.startswith("wrong: refuted, of about 10^20 questions; a small one: ")
    asked = judgment.counterexample["input"]  # only a digit or two are left of it
    assert len(asked) == 31 and asked.count("0") >= 29


def test_numbers_may_be_of_any_length():
    """No level has such yet."""
    model = load("adder-coupled:digits=22")
    W_E = model.weights["embed.W_E"].copy()
    W_E[9] = -W_E[9]
    broken = replace(model, weights={**model.weights, "embed.W_E": W_E})
    assert sum(_shrink_counterexample(broken, load_task(model), [10**22 - 1, 10**21])) == 9


def test_right_is_told_with_the_score_beside_the_best_known():
    judgment = judge(level("traffic-light"), solution("traffic-light"))
    assert judgment.passed and judgment.verdict.startswith(
        "right: all 120 questions; the right token leads"
    )
    assert judgment.score["parameters"] == 30 and judgment.score["layers"] == 0
    assert judgment.lines[1] == "parameters: 30 (best known 9)"
    smaller = judgment.__class__(judgment.level, True, score={"parameters": 8}, best=judgment.best)
    assert smaller.lines[1] == "parameters: 8 (best known 9 — beaten)"


def test_right_and_too_large_is_not_passed():
    judgment = judge(level("echo-in-20"), solution("echo"))
    assert judgment.right and not judgment.passed and judgment.over == ["parameters"]
    assert judgment.verdict.startswith("right, but too large (54 parameters, the most is 20)")


def test_a_source_is_compiled_and_proved():
    judgment = judge(level("again"), solution("again"))
    assert judgment.passed and "compiled, and proved for every text" in judgment.coverage
    made = compiler.compile(solution("again"))
    assert judgment.score["parameters"] == sum(w.size for w in made.model.weights.values())


def test_a_tie_is_wrong():
    judgment = judge(level("echo"), level("echo").stub)
    assert not judgment.right and judgment.counterexample["got"].endswith("by a tie")


def test_what_rounding_could_turn_is_not_right():
    near = solution("traffic-light", 3) + "out_bias: [1e15 1e15 1e15]\n"
    judgment = judge(level("traffic-light"), near)
    assert not judgment.right and judgment.problem.endswith(
        "which another order of the same sums could turn"
    )


def test_rounding_is_looked_at_on_every_question():
    """Of logits near 1e17, 16 is a tie; the least lead of all questions is elsewhere, and clear."""
    vocabulary, around = load("repeat-last").vocabulary, 2 * np.pi * np.arange(10) / 10
    config = Config(d_vocab=10, n_ctx=16, d_model=3, n_layers=0, norm="none", positions="none")
    E = np.stack([np.cos(around), np.sin(around), np.zeros(10)], 1)
    U = np.stack([*E.T[:2], np.ones(10)])
    loud = E * np.where(np.arange(10) == 9, 100, 1)[:, None]
    loud[9, 2] = 1e17
    results = [
        judge(level("echo"), write(Model(config, {"embed.W_E": e, "unembed.W_U": U}, vocabulary)))
        for e in (E, loud)
    ]
    assert results[0].right and not results[1].right
    assert results[1].problem.startswith("0 0 9 is right by 16, which another order")


def test_a_logit_that_is_not_finite_is_wrong():
    loud = (
        solution("traffic-light", 3)
        .replace("[-1 -1]]", "[-1e308 -1e308]]")
        .replace("[1 0]", "[9 9]")
    )
    assert not judge(level("traffic-light"), loud).right


def test_a_model_that_sees_what_is_to_come_is_judged_by_what_it_writes():
    text = solution("traffic-light") + "mask: none\n"
    assert judge(level("traffic-light"), text).passed


def test_a_text_that_the_interpreter_refuses_is_wrong(monkeypatch):
    """Though it is looked at together with others, which are right."""
    real = compiler.emitted

    def refusing(program, texts):
        if any(text[:3] == [1, 0, 2] for text in texts.tolist()):
            raise GlassformerError("a combination that was said never to be")
        return real(program, texts)

    monkeypatch.setattr(compiler, "emitted", refusing)
    judgment = judge(level("look-back"), solution("look-back"))
    assert judgment.wrong == 1 + 4 + 16 and judgment.counterexample["input"] == "b a c"
    assert judgment.counterexample["got"] == "a combination that was said never to be"


LIGHT, SQUARES = 'tokens: [red green amber]  sep: " "', "tokens = [*range(10)]\nlength = 3\n"
BAD = {
    "nothing": ("traffic-light", "", "tok_emb"),
    "no text": ("traffic-light", 7, "expected a text of at most"),
    "too long": (
        "traffic-light",
        "#" * (MAX_SOLUTION_CHARACTERS + 1),
        "at most 100,000 characters",
    ),
    "cut off": ("traffic-light", "tok_emb: [[1", "traffic-light.taotp:1:13 — "),
    "other tokens": ("traffic-light", "tok_emb: ring(3)  block_size: 4", "vocabulary has"),
    "a short block": ("traffic-light", f"{LIGHT} tok_emb: ring(3) block_size: 2", "n_ctx"),
    "not the language": ("squares", "import os", "import"),
    "another length": ("squares", f"{SQUARES}emit = token".replace("3", "4"), "expected length"),
    "more tokens": ("squares", f"{SQUARES}emit = token".replace("10", "11"), "expected tokens"),
    "no end": ("copy", level("copy").stub.replace('end = "."\n', ""), "expected end"),
    "no such look": ("squares", f"{SQUARES}emit = latst(token)", "latest"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_judged_is_said(case):
    name, text, words = BAD[case]
    judgment = judge(level(name), text)
    assert (
        words in judgment.problem
        and not judgment.right
        and not judgment.passed
        and not judgment.score
    )
    assert judgment.lines == [f"not judged: {judgment.problem}"]


def test_nothing_that_is_sent_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\nclass Task: pass\n")
    texts = {
        "squares": "tokens = [*range(10)]\nlength = 3\n"
        "emit = token if __import__('evil') else open('ran', 'w')",
        "traffic-light": 'task: "evil.py:Task"\n' + solution("traffic-light"),
    }
    assert judge(level("squares"), texts["squares"]).problem
    assert judge(level("traffic-light"), texts["traffic-light"]).passed
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind,text,lines", [
    ("taotp", "", 0), ("taotp", "# a\n\n  # b\n", 0), ("taotp", "a: 1  # b\nc: 2\n", 2),
    ("taotp", "x" * 101, 2), ("taotp", "x" * 100 + " # y", 1),
    ("taotp", 'a: "#' + "x" * 100 + '"', 2), ("taotp", "a: '#\\'#" + "x" * 100 + "'  # y", 2),
    ("taotp", 'a: ";;;"', 1), ("taotp", "# it's\na: 1\n# it's\n", 1),
    ("glass", "# a\n\n  # b\n", 0), ("glass", "a = 1; b = 2\n", 2),
    ("glass", '"""What it\nis."""\na = 1\n', 1), ("glass", '"""What."""; a = 1; b = 2\n', 2),
    ("glass", '"Ä # b"  # c\na = 1', 1), ("glass", 'z = "#"; a = 1; b = 2\n', 3),
    ("glass", 'z = ";#;"  # ; a', 1), ("glass", 'a = """#\n\n#"""\nb = 2', 3),
    ("glass", "def f(x): return x\n", 2), ("glass", "def f(x):\n    return x\n", 2),
    ("glass", "a = [1,\r     2]\rb = 3", 3), ("glass", "\ufeffa = 1", 1),
    ("glass", f"a = {'1 + ' * 23}1", 1), ("glass", f"a = {'1 + ' * 24}1", 2),
])  # fmt: skip
def test_lines_are_counted_so_that_nothing_is_gained_by_squeezing(kind, text, lines):
    assert count_lines(text, kind) == lines


def test_a_solution_in_one_line_has_as_many_as_before():
    plain = solution("balanced")
    squeezed = 'z = "#"; ' + "; ".join(plain.splitlines())
    result, other = (judge(level("balanced"), text) for text in (plain, squeezed))
    assert result.passed and other.passed and other.score["lines"] == result.score["lines"] + 1

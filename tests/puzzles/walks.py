"""Three levels solved by someone who has only what the level says: stub, judge and hints.

A step is (the hint that is read, what is replaced, by what). Every piece of what is typed stands in
a hint that was read by then, in the stub, or in the goal: test_walks.py sees to it.
"""

WALKS = {
    "traffic-light": [
        (3, "tok_emb: ring(3)\n", "tok_emb: ring(3)\nout_emb: ring(3) * shift(-1 3)\n"),
    ],
    "one-back": [
        (1, "", ""),
        (2, "Q: { place: eye(3) * T * T }", "Q: { place: shift(-1 T) }"),
        (3, "Q: { place: shift(-1 T) }", "Q: { place: shift(-1 T) * T * T }"),
    ],
    "look-back": [
        (2, "emit = token", "emit = only(token, position == here.position - 1)"),
        (3, "here.position - 1)", 'here.position - 1, default="-")'),
    ],
}
# The words that the judge's answer to each text begins with: to the stub, then after each step.
TOLD = {
    "traffic-light": [
        "wrong: 120 of all 120 questions; the smallest: red → red, expected green",
        "right: all 120 questions",
    ],
    "one-back": [
        "wrong: 3,120 of all 3,900 questions; the smallest: 0 1 → 1, expected 0",
        "wrong: 3,120 of all 3,900 questions; the smallest: 0 1 → 1, expected 0",
        "wrong: 1,030 of all 3,900 questions; the smallest: 0 1 4 → 0, expected 1",
        "right: all 3,900 questions",
    ],
    "look-back": [
        "wrong: 1,023 of all 1,364 questions; the smallest: a → a, expected -",
        "not judged: look-back.glass:3:8 — emit",
        "right: all 1,364 questions; compiled, and proved for every text",
    ],
}

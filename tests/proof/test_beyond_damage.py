"""Damaged models of every task beyond addition, and of several architectures, against enumeration
by a decoder that shares no code with the package.
"""

import collections
import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cases import drawn
from glassformer import load, resolve
from glassformer.proof.other_tasks import prove_by_cases
from glassformer.proof.prover import Proof

from .independent import last_logits, plain
from .test_beyond import one_head
from .test_prove_damage import KINDS as ALL
from .test_prove_damage import damaged, one_digit_is_worth_more

KINDS = [kind for kind in ALL if kind is not one_digit_is_worth_more]  # it needs ten digits
EQUALS, END = 5, 7  # tokens of `reverse` with an alphabet of four: + is 4, = 5, <PAD> 6, <EOS> 7


# ── what is right, said once more: prompts, and the tokens that must follow ────────────────────
def numbers(vocab, n, pick):
    rows = np.array(list(itertools.product(range(vocab), repeat=n)))
    yield rows, pick(rows, axis=1)[:, None]


def backwards(n):
    rows = np.array(list(itertools.product(range(4), repeat=n)))
    ends = np.full((len(rows), 1), END)
    yield (
        np.concatenate([rows, np.full((len(rows), 1), EQUALS)], 1),
        np.concatenate([rows[:, ::-1], ends], 1),
    )


def in_order(vocab, longest):
    for n in range(1, longest + 1):
        rows = np.array(list(itertools.permutations(range(1, vocab), n)))
        yield np.concatenate([rows, np.zeros((len(rows), 1), int)], 1), np.sort(rows, 1)


def modulo(p, sign):
    rows = np.array(list(itertools.product(range(p), repeat=2)))
    right = (rows[:, 0] + sign * rows[:, 1]) % p
    yield np.concatenate([rows, np.full((len(rows), 1), p)], 1), right[:, None]


SUBJECTS = {
    "min:vocab=7": ("min:vocab=7,length=4", lambda: numbers(7, 4, np.min)),
    "max:vocab=7,variant=book": ("max:vocab=7,length=4", lambda: numbers(7, 4, np.max)),
    "max:vocab=7,dtype=float32": ("max:vocab=7,length=4", lambda: numbers(7, 4, np.max)),
    "reverse:length=3,alphabet=4": ("", lambda: backwards(3)),
    "reverse:length=3,alphabet=4,dtype=float32": ("", lambda: backwards(3)),
    "sort:vocab=7,length=4": ("", lambda: in_order(7, 4)),
    "sort:vocab=7,length=4,dtype=float32": ("", lambda: in_order(7, 4)),
    "sort:vocab=7,length=4,variant=book": ("", lambda: in_order(7, 4)),
    "modular-addition:p=11": ("", lambda: modulo(11, 1)),
    "modular-addition:p=11,operation=-": ("", lambda: modulo(11, -1)),
}


@cache
def subject(ref):
    model = load(ref)
    return model, resolve.load_task(SUBJECTS[ref][0] or model)


def leads(model, ref):
    """The least lead of the right token while decoding, over all inputs; NaN if not finite."""
    worst = np.inf
    with np.errstate(all="ignore"):
        for read, answer in SUBJECTS[ref][1]():
            for t in range(answer.shape[1]):
                logits = last_logits(model.config, model.weights, read, plain).astype(float)
                right = answer[:, t : t + 1]
                best = np.take_along_axis(logits, right, 1)[:, 0]
                finite = np.isfinite(logits).all(1)
                np.put_along_axis(logits, right, -np.inf, 1)
                gap = np.where(finite, best - logits.max(1), np.nan)
                worst = np.minimum(worst, gap.min())
                read = np.concatenate([read, right], 1)
    return float(worst)


def judged(model, task):
    def say(result, cases, **more):
        return Proof(result, cases, dtype=model.dtype, model="", task=task.ref, method="", **more)

    return prove_by_cases(model, task, 0, say)


def tally(count, seed, refs_=tuple(SUBJECTS)):
    rng, output, against = np.random.default_rng(seed), collections.Counter(), []
    for i in range(count):
        ref, kind = refs_[i % len(refs_)], KINDS[(i // len(refs_)) % len(KINDS)]
        model, task = subject(ref)
        while True:
            result = damaged(model, kind, rng)
            if all(np.isfinite(w).all() for w in result.weights.values()):
                break
        proof, lead = judged(result, task), leads(result, ref)
        output[proof.result, "right" if lead > 0 else "wrong"] += 1
        if proof.result == "proved" and not lead >= (proof.margin or 0) * (1 - 1e-6):
            against.append((ref, kind.__name__, i, proof.margin, lead))
        if proof.result == "refuted" and lead > 1e-6:
            against.append((ref, kind.__name__, i, "refuted", lead))
    return output, against


@pytest.mark.parametrize("ref", SUBJECTS)
@pytest.mark.some(3)
def test_the_decoder_has_every_subject_right(ref):
    assert leads(subject(ref)[0], ref) > 0


def test_soft_heads_are_not_contradicted_either():
    """Random models of one head are wrong nearly everywhere: nothing is proved of them."""
    _, task = subject("min:vocab=7")
    for seed, norm in itertools.product(range(2), ("none", "layer")):
        model = replace(one_head(seed, 7, 4, norm), task=task.ref)
        assert judged(model, task).result == "refuted"


def test_the_prover_never_contradicts_enumeration():
    output, against = tally(10, seed=1)
    assert not against and sum(output.values()) == 10


@pytest.mark.slow
def test_the_prover_never_contradicts_enumeration_of_many_models():
    count = drawn(500, 4)
    output, against = tally(count, seed=0)
    print(dict(output))
    assert not against, against
    assert min(output["proved", "right"], output["refuted", "wrong"]) >= count // 5, output
    assert sum(n for (result, _), n in output.items() if result == "unknown") <= count // 5, output

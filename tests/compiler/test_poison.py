"""Declarations with a poisoned number: nothing wrong is proved, and no foreign error raised."""

import copy
import math
from dataclasses import fields, replace

import numpy as np
import pytest

from compiler.compiled import changed, small
from glassformer import GlassformerError
from glassformer.compiler import recheck
from glassformer.compiler.certify import certify
from glassformer.compiler.driver import PROVENANCE_KEY, load_declaration

NUMBERS = [math.inf, -math.inf, math.nan, 1e308, -1e308, 1e154, 1e16, -0.0, 5e-324, 2.5, 2**31,
           2**63, 10**400, -1, 0, True]  # fmt: skip
OTHERS = ["1", None, [], {}, b"x", 1j, "__class__"]
NAMES = ["often", "brackets"]


def wrong(model):
    """The model with the tokens of its head moved on by one: it says others than it should."""
    U = model.weights["unembed.W_U"].copy()
    U[:, 1:] = np.roll(U[:, 1:], 1, axis=1)
    return changed(model, {"unembed.W_U": U})


def holds(model, program=None, said=None):
    """Whether it is proved; whatever else is raised comes through."""
    try:
        recheck(model) if said is None else certify(model, program, said)
    except GlassformerError as e:
        assert "\n" not in str(e) and len(str(e)) < 1_000
        return False
    return True


def poisoned(entry):
    """Declarations as JSON, each with one number that is something else, or with a part missing."""
    for part in ("values", "room"):
        for row, col in {(r, c) for r, x in enumerate(entry[part]) for c in range(len(x))}:
            for poison in NUMBERS + OTHERS:
                new = copy.deepcopy(entry[part])
                if isinstance(new[row][col], list):
                    if not new[row][col][0]:
                        continue
                    new[row][col][-1][0] = poison
                else:
                    new[row][col] = poison
                yield {part: new}
            yield {part: [*entry[part][:row], entry[part][row][:col], *entry[part][row + 1 :]]}
        yield {part: entry[part][1:]}


@pytest.mark.parametrize("name", ["often", pytest.param("brackets", marks=pytest.mark.slow)])
def test_a_carried_declaration(name):
    model = small(name).model
    bad = wrong(model)
    assert holds(model) and not holds(bad)
    for entry in poisoned(model.provenance[PROVENANCE_KEY]):
        assert not holds(changed(bad, entry=entry))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.some(2)
def test_a_declaration_of_objects(name):
    model = small(name).model
    program, output = load_declaration(model.provenance[PROVENANCE_KEY])
    bad = wrong(model)
    assert holds(model, program, output) and not holds(bad, program, output)
    for part in ("codes", "sublayers", "slots", "average_slots"):
        whole = getattr(output, part)
        others = [{}, *({k: x for k, x in whole.items() if k is not v} for v in whole)]
        for v, x in whole.items():
            for poison in NUMBERS + OTHERS:
                new = [poison]
                if part == "codes" and x.size:
                    made = x.astype(object)
                    made[-1, 0] = poison
                    new += [made, made.tolist(), x[0], x[:, :-1], x.astype(int)]
                    if isinstance(poison, (int, float)) and abs(poison) < 10**300:
                        new.append(np.where(x == x[-1, 0], float(poison), x))
                if part in ("slots", "average_slots"):
                    new += [slice(poison, x.stop), slice(x.start, poison), slice(0, 3, poison)]
                others += [{**whole, v: y} for y in new]
        for other in others:
            assert not holds(bad, program, replace(output, **{part: other}))


def test_every_part_of_a_declaration_is_poisoned():
    """A part that is new in a declaration has a place in the test above."""
    names = {
        f.name for f in fields(load_declaration(small("often").model.provenance[PROVENANCE_KEY])[1])
    }
    parts = {"program", "replacements", "codes", "sublayers", "slots", "average_slots"}
    assert names == parts

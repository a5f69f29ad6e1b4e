"""Find the case of a pair of numbers from its digits."""

import numpy as np


def case_of(cases, rows):
    """Return the case of each pair of numbers, [B]; −1 for none."""
    mine, names = np.zeros(len(rows), np.int64), np.zeros(len(cases), np.int64)
    for step, way in zip(cases.window, cases.ways, strict=True):
        power = 10**step.column
        carry, (a, b) = (rows % power).sum(1) // power, (rows // power % 10).T
        owner = np.full(200, -1)
        for i in range(len(step.carry_in)):
            owner[step.members(i)] = i
        mine, names = 200 * mine + owner[100 * carry + 10 * a + b], 200 * names + way
    assert len(set(names)) == len(names), "two cases are the same"
    number = dict(zip(names.tolist(), range(len(names)), strict=True))
    return np.array([number.get(name, -1) for name in mine.tolist()])

"""Roles: what the next token needs is where a task says it is."""

import numpy as np
import pytest

from glassformer import load_task

TASKS = ["addition:digits=2,order=ones", "addition:digits=2", "addition:digits=3,order=ones",
    "reverse:length=3",
         "modular-addition:p=13", "modular-addition:p=13,plus=true",
         "modular-addition:p=7,operation=-"]  # fmt: skip


@pytest.mark.parametrize("ref", TASKS)
def test_the_next_token_follows_from_the_roles_and_from_no_fewer(ref):
    task = load_task(ref)
    rows = (
        task.sample(4_000, np.random.default_rng(0))
        if task.size > 4_000
        else task.rows(0, task.size)
    )
    tokens, answer = task.batch(rows)
    needed = np.any(list(task.roles().values()), axis=0)
    assert needed.shape == (tokens.shape[1] - 1,) * 2
    assert not np.triu(needed, 1).any(), "what is to come cannot be read"
    for t in range(tokens.shape[1] - 1):
        if not answer[0, t + 1]:
            assert not needed[t].any()
            continue
        keys = np.nonzero(needed[t])[0]
        assert functional(tokens[:, keys], tokens[:, t + 1])
        for gone in keys:
            fewer = keys[keys != gone]
            # two of these three tell the carry in most sums: the digit just written, and those of
            # the column below
            spare = "order=ones" in ref and task.roles()["carry"][t, gone]
            assert spare or not functional(tokens[:, fewer], tokens[:, t + 1]), (
                f"row {t} does not need {gone}"
            )


def functional(read, said):
    """Whether equal rows of `read` always go with equal `said`."""
    pairs = np.unique(np.column_stack([read, said]), axis=0)
    return len(pairs) == len(np.unique(pairs[:, :-1], axis=0))


def test_no_fixed_map_no_roles():
    assert load_task("addition:padding=none").roles() == {} == load_task("sort").roles()

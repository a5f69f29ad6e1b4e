"""The recipe that a task gets if nobody names one: chosen by what the task says of itself."""

import pytest

import glassformer as gf
from glassformer.tasks.token_layout import TOKEN, TokenLayout
from glassformer.training.data import TrainingData
from glassformer.training.recipe import MAX_STEPS
from glassformer.training.recipes import choose_recipe, find_recipe
from helpers import raises


@pytest.mark.parametrize("ref", [*gf.list("tasks"), "modular-addition:p=2", "addition:digits=12"])
def test_every_task_has_rows_to_train_on_and_none_of_them_is_tested(ref):
    task = gf.load_task(ref)
    chosen = choose_recipe("", task)
    data = TrainingData(task, chosen)
    assert chosen.name == "auto" and chosen.full_domain_steps and len(data.test_rows)
    tokens, answer = data.tokens_for_step([0], 0)
    assert tokens.shape[1] and answer.any((0, 2)).any()
    few = task.size <= 1_000
    assert (chosen.data == "all") == few
    trained = data._fresh_rows([0], 0) if chosen.data == "fresh" else data.train_rows
    both = {tuple(r) for r in trained.tolist()} & {tuple(r) for r in data.test_rows.tolist()}
    assert len(both) == (task.size if few else 0)


@pytest.mark.parametrize("p", [2, 3, 11, 23, 31, 37, 59, 61])
@pytest.mark.parametrize("operation", ["+", "-", "*", "/"])
def test_no_modulus_is_too_small(p, operation):
    task = gf.load_task(f"modular-addition:p={p},operation={operation}")
    data = TrainingData(task, choose_recipe("", task))
    assert len(data.test_rows) > 0 and data.tokens_for_step([0], 0)[0].size


def test_size_says_how_many_rows_are_held_out():
    shares = [
        choose_recipe("", gf.load_task(ref)).holdout_fraction for ref in ("add-mod", "addition")
    ]
    assert shares == [0.1, 0.05]


def test_other_data_than_the_recipe_has_leave_its_shares_behind():
    task = gf.load_task("addition:digits=2")
    drawn = choose_recipe("", task).override({"data": "draw", "train_rows": 50})
    assert (drawn.holdout_fraction, drawn.train_rows, drawn.data) == (0, 50, "draw")
    split = choose_recipe("", gf.load_task("modular-addition:p=37")).override({"data": "fresh"})
    assert split.train_fraction == 0 and split.test_rows == 10_000
    kept = choose_recipe("", task).override({"data": "fresh", "holdout_fraction": 0.2})
    assert kept.holdout_fraction == 0.2


def test_without_a_task_there_is_nothing_to_suit():
    with raises("bad_argument", "auto"):
        find_recipe("auto")


def test_far_texts_get_distances_and_a_curriculum_where_the_task_has_levels():
    far = choose_recipe("", gf.load_task("search"))
    assert (
        far.positions == "rotary" and far.curriculum == f"8@0 16@300 32@600 64@900 {MAX_STEPS}@1200"
    )
    without = choose_recipe("", gf.load_task("sort:length=40,exact=true,vocab=60"))
    assert without.positions == "rotary" and without.curriculum == ""
    near = choose_recipe("", gf.load_task("sort-digits"))
    assert near.positions == "learned" and near.curriculum == ""


def test_many_tokens_get_rows_with_numbers_alike_unless_all_rows_are_trained_on():
    refs = ("max", "sort", "max:length=1", "sort:vocab=200,length=20")  # the last: of lists
    assert [choose_recipe("", gf.load_task(ref)).near_tie_fraction for ref in refs] == [
        0.75,
        0,
        0,
        0,
    ]


def test_a_small_domain_of_far_texts_has_no_curriculum():
    task = gf.load_task("sort:vocab=2,length=70,repeats=true")
    assert task.size <= 1_000
    chosen = choose_recipe("", task)
    assert (chosen.data, chosen.curriculum) == ("all", "")


def test_two_layers_unless_the_ones_are_written_first():
    """The first digit of a sum needs all carries at once; with the ones first, one column."""
    layers = {
        "addition": 2, "addition:order=ones": 1, "addition:digits=1,order=ones": 1, "sort": 2,
        "hello-world": 2, "max": 2, "addition:digits=10,order=ones": 2,  # a long text
    }  # fmt: skip
    chosen = {ref: choose_recipe("", gf.load_task(ref)) for ref in layers}
    assert {ref: r.n_layers for ref, r in chosen.items()} == layers
    assert {r.n_heads for ref, r in chosen.items() if ref != "max"} == {4}


def test_fixed_tokens_are_no_digits():
    ones = TokenLayout(((TOKEN, 5), ("s", 0), ("s", 1)), 1)
    assert ones.ones_first and not TokenLayout((("x1", 0), ("y1", 0), ("y2", 0)), 1).ones_first
    assert not TokenLayout(((TOKEN, 5), (TOKEN, 0), (TOKEN, 1)), 1).ones_first


def test_many_tokens_have_the_rates_of_fast_and_more_steps_to_be_exact():
    few, many = (choose_recipe("", gf.load_task(ref)) for ref in ("sort", "max"))
    assert (few.lr, few.muon_lr, few.full_domain_steps) == (0.01, 0.02, 2_000)
    assert (many.lr, many.muon_lr, many.full_domain_steps) == (0.006, 0.006, 4_000)

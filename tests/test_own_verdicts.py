"""Verdicts on one's own tasks: of the task that was given, by the file that was typed."""

import pickle

import numpy as np

import glassformer as gf
from glassformer import registry, user_modules
from glassformer.core.model import Config, Model, zeros
from glassformer.proof import equivalence
from glassformer.tasks.extremes import Max
from glassformer.tasks.reverse import Reverse
from helpers import raises


class AlmostMax(Max):
    """Right is something else, once in a while: no lemma of Max speaks of it."""

    def batch(self, rows):
        tokens, answer = super().batch(rows)
        odd = (rows[:, :3] == [3, 1, 4]).all(1) & (rows[:, -1] == 5)
        tokens[odd, -1] = 0
        return tokens, answer


class Empty(Reverse):
    def defined(self, rows):
        return np.zeros(len(rows), bool)


def test_what_derives_from_a_task_is_not_proved_as_that():
    model = gf.load("max:vocab=100")
    assert gf.prove(model).result == "proved"
    with raises("bad_argument", "certificates"):
        gf.prove(model, AlmostMax(vocab=100))
    with raises("bad_argument", "certificates"):
        gf.prove(model, AlmostMax(vocab=100), accuracy=True)


def test_a_page_judges_by_the_task_that_was_given():
    model = gf.load("reverse:length=3")
    assert gf.verify(model, Empty(length=3)).checked == 0
    with raises("bad_argument", "task", "Empty"):
        gf.report(model, task=Empty(length=3))
    with raises("bad_argument", "input"):
        gf.prove(model, Empty(length=3), accuracy=True)
    other = gf.load("reverse:length=3,dtype=float32")
    assert gf.prove(model, Empty(length=3), equal_to=other).result == "unknown"


def test_models_that_do_not_end_an_answer_are_not_said_to_be_equal():
    """1+2: one says 111, the other 117, and the right answer has one digit and an end."""
    task = gf.load_task("addition:digits=1,padding=none")
    V = len(task.vocabulary)
    config = Config(d_vocab=V, n_ctx=9, d_model=V, n_layers=1, n_heads=1, d_head=1, norm="none")
    both = []
    for last in (1, 7):
        weights = {name: np.zeros_like(w) for name, w in zeros(config).items()}
        weights["unembed.W_U"] = np.eye(V)
        weights["pos_embed.W_pos"][range(4, 7), [1, 1, last]] = 1.0  # what is said after each
        both.append(Model(config=config, weights=weights, vocabulary=task.vocabulary))
    short, long = np.array([[1, 2]]), np.array([[9, 9]])
    pair = equivalence.ModelPair(*both, task)
    # equal up to the length of the answer, which does not end there
    assert pair.find_difference(short) is None and pair.unsure.count == 1
    assert pair.find_difference(long)


SOURCE = '''
import glassformer as gf
from glassformer.tasks.reverse import Reverse
from helpers import raises

class T(Reverse):
    """Backwards."""
'''


def test_no_other_file_of_that_name_is_run(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, more in ((here, ""), (there, "open('ran', 'w')\n")):
        folder.mkdir()
        (folder / "mine.py").write_text(SOURCE + more)
    monkeypatch.chdir(here)
    task = gf.load_task(user_modules.load_user_files("mine.py:T:length=3"))
    sent = pickle.dumps(task)
    assert type(pickle.loads(sent)).__name__ == "T" and registry.file_digest(task.ref)
    monkeypatch.chdir(there)
    with raises("bad_argument", "mine.py"):
        pickle.loads(sent)
    assert not (there / "ran").exists()


def test_a_journal_is_of_one_text_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    model = gf.load("reverse:length=3")
    gf.verify(
        model, gf.load_task(user_modules.load_user_files("mine.py:T:length=3")), journal="j.jsonl"
    )
    file.write_text(SOURCE + "# other\n")
    with raises("bad_argument", "j.jsonl"):
        changed = gf.load_task(user_modules.load_user_files("mine.py:T:length=3"))
        gf.verify(model, changed, journal="j.jsonl")

"""Draws book-run.png: our run of the book's recipe, from the history that was kept of it. Run
it with Python.
"""

from current import put

import glassformer as gf
from glassformer import plotting
from glassformer.published_claims.book import history
from glassformer.tasks.token_layout import answer_names
from glassformer.training import Training
from glassformer.training.events import Watcher
from glassformer.training.loss_floor import floors
from glassformer.training.recipes import recipe

task, book = gf.load_task("addition:order=ones"), recipe("book")
past = history("book")
watcher = Watcher(book, 0, task.floor())
events = [event for report in past for event in watcher.look(report["step"], report)]
last = past[-1]
made = gf.load("book-3.safetensors")
run = Training(made, book, 0, last["step"], 0.0, last["accuracy"], "done", past, events)
title = "addition:order=ones, recipe book, seed 0"
figure = plotting.training_curves([run], floors(task, book), answer_names(task), title)
put(figure, "book-run.png")

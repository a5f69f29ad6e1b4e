"""Draw book-run.png, our run of the book's recipe, from its kept history."""

from current import put

import glassformer as gf
from glassformer import plotting
from glassformer.published_claims.book import read_history
from glassformer.tasks.token_layout import answer_names
from glassformer.training import Training
from glassformer.training.events import MilestoneTracker
from glassformer.training.loss_floor import loss_plateaus
from glassformer.training.recipes import find_recipe

task, book = gf.load_task("addition:order=ones"), find_recipe("book")
past = read_history("book")
watcher = MilestoneTracker(book, 0, task.entropy_floor())
events = [event for report in past for event in watcher.update(report["step"], report)]
last = past[-1]
model = gf.load("book-3.safetensors")
run = Training(model, book, 0, last["step"], 0.0, last["accuracy"], "done", past, events)
title = "addition:order=ones, recipe book, seed 0"
figure = plotting.training_curves([run], loss_plateaus(task, book), answer_names(task), title)
put(figure, "book-run.png")

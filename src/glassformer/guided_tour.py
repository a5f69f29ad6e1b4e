"""The guided tour: a live demonstration, from building models to a report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import Any

from rich.console import Console
from rich.table import Table

from . import taotp
from .compiler import library
from .core.components import head_names
from .core.model import Model
from .core.param_count import count
from .generate import prompt_tokens, run
from .lens import explain
from .lens.interventions.patch import interchange
from .programs.adders.coupled import extended_to
from .proof import prove
from .published_claims import ledger
from .report_page.report import check_html_suffix, report
from .resolve import load, load_task
from .tasks.token_layout import answer_names
from .utils.fileio import check_writable
from .utils.numfmt import format_percent
from .utils.results import Result
from .verification import Verdict, verify

PROGRAM_EXAMPLES = [  # ref, input
    ("hello-world", ""),
    ("lookup:table=xor", "0 1"),
    ("search:prefix=3,vocab=10,block=100", "1 2 3 4 5 6 1 2 3"),
    ("min:vocab=10", "6 2 7 9 4"),
    ("sort", "612 7 999 45"),
    ("add-digit:variant=attention", "7 8"),
    ("addition:digits=3", "123+989"),
    ("addition:digits=3,order=ones", "123+989"),
    ("addition:digits=10", "9999999999+1"),
    ("multiplication:digits=2", "98*76"),
    ("reverse:length=5", "12345"),
    ("modular-addition:p=113", "100+50"),
]
SAMPLE_SIZES = {  # number of rows to check in domains that are too large
    "search:prefix=3,vocab=10,block=100": 2_000,
    "sort": 500,
    "addition:digits=10": 20_000,
}
TRAINED_SAMPLE_ROWS = 100_000  # number of sums out of a million to check with the trained adder
BOOKLET, BOOK, NANDA = "The booklet", "How a Transformer Learns Addition", "Nanda et al."
CLAIM_SENTENCES: list[tuple[str, str, Callable[[Any], str]]] = [  # source, claim, sentence
    (BOOKLET, "booklet-2.4-parameters", lambda n: f"its Hello World has {n} parameters"),
    (BOOKLET, "booklet-6.1-attention", lambda n: f"our add-digit:variant=attention has {n}"),
    (BOOKLET, "booklet-4-right",
     lambda x: f"its model is wrong on {x:.1%} of all short texts; it needs a first token"),
    (BOOK, "book-3.3-memorises",
     lambda x: f"training accuracy was at most {100 * x:.1f} points ahead of test accuracy"),
    (BOOK, "book-4.1-columns-second", lambda said: f"{said} of a quicker recipe"),
    (NANDA, "nanda-4.3-neurons", lambda x: f"{x:.1%} in our model, which has another seed"),
]  # fmt: skip
NEXT_COMMANDS = [  # suggested commands at the end
    ("glassformer explain addition:order=ones 127+458=5", "why the next digit is an 8"),
    ("glassformer train addition:order=ones --out mine.safetensors", "an adder of your own"),
    ("glassformer inspect mine.safetensors --out inside", "what it has learned, with figures"),
    ("glassformer check-task --help", "then a task of your own: docs/guide/08-yours.md"),
    ("glassformer list programs", "what else there is; the guide: docs/guide/01-start.md"),
]
SHORT_AND_LONG_DIGITS, TRAINED_SEEDS = ((3, 20), (0, 1, 2, 3))
PROVED_REFS = "addition:digits=10", "adder-least"


@dataclass(frozen=True)
class TourResult(Result):
    """Result of a tour: its failures and the path of its report."""

    wrong: int  # number of programs, tests, claims and proofs that failed
    page: Path  # path of the report
    seconds: float
    missed: int = 0  # number of checked sums that the trained adder gets wrong

    @property
    def holds(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        went = "programs, tests, claims and proofs came out as they should"
        if self.wrong:
            went = f"{self.wrong} of its programs, tests, claims and proofs went wrong"
        if self.missed:  # the adder is right only on its test rows
            went += f"; the adder that was trained is wrong on {self.missed:,} of the sums checked"
        return f"the tour: {went}; its page is {self.page}"


def tour(
    page: str | Path = "glassformer-tour.html", *, console: Console | None = None
) -> TourResult:
    """Implement `api.tour`: run and print each part, and write a report at the end."""
    check_html_suffix(page)
    check_writable(page)
    start, out = time.perf_counter(), console or Console(highlight=False, markup=False)
    wrong = verify_programs(out)
    explain_token(out)
    print_text_program(out)
    failed, missed, adder = train_adder(out)
    wrong += failed + measure_claims(out)
    wrong += prove_adders(out)
    prove_longer_adder(out)
    wrong += compile_sort(out)
    write_report(out, adder, Path(page))
    write_walkthroughs(out, Path(page))
    print_heading(out, "What comes next")
    width = max(len(command) for command, _ in NEXT_COMMANDS)
    for command, purpose in NEXT_COMMANDS:
        out.print(f"  {command:<{width}}  {purpose}")
    seconds = time.perf_counter() - start
    out.print(f"\nDone in {seconds:.0f} s.", style="dim")
    return TourResult(wrong, Path(page), seconds, missed)


def print_heading(out: Console, text: str) -> None:
    out.print(f"\n{text}\n", style="bold")


def verify_programs(out: Console) -> int:
    """Build, run, count and verify one program of every kind. Return the number of failures."""
    print_heading(out, "One transformer, weights set by hand")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("model", "input", "output"):
        table.add_column(name)
    for name in ("parameters", "checked", "wrong", "worst margin"):
        table.add_column(name, justify="right")
    wrong = 0
    for ref, text in PROGRAM_EXAMPLES:
        model, verdict = _load_and_verify(ref)
        wrong += not verdict.holds
        checked = f"{'all' if verdict.exhaustive else 'sampled'} {verdict.checked:,}"
        output, size = run(model, text).output, f"{count(model).total:,}"
        wrongs, margin = str(verdict.wrong), f"{verdict.worst_margin:.2g}"
        table.add_row(ref, text, output, size, checked, wrongs, margin)
    out.print(table)
    return wrong


@cache
def _load_and_verify(ref: str) -> tuple[Model, Verdict]:
    model = load(ref)
    return model, verify(model, load_task(model), sample=SAMPLE_SIZES.get(ref))


def _sample_parts(verdict: Verdict) -> str:
    """Describe the sample of a verdict, or return "" if all rows were checked."""
    if verdict.exhaustive:
        return ""
    edges, drawn = (verdict.parts[part]["checked"] for part in ("edges", "sample"))
    return f", {edges:,} edge cases and {drawn:,} drawn at random"


def explain_token(out: Console) -> None:
    """Explain one token by the names of heads and print the explanation."""
    print_heading(out, "Why does 123+989= start with a 1?")
    model = load("addition:digits=3,order=most")
    story = explain(model, prompt_tokens(model, "123+989"))
    for layer in story.layers:
        for head in layer.heads:
            read = ", ".join(
                f"{token} at {s} ({format_percent(w, 1)})" for s, token, w in head.read[:4]
            )
            out.print(f"  {head.name}: read {read}")
    out.print(f"  {story.winner} beats {story.runner_up} by {story.margin:.3g}")


def print_text_program(out: Console) -> None:
    """Print a model as text, parse that text and run the parsed model."""
    print_heading(out, "A transformer as text: the largest of 0, 1 and 2, in whole numbers")
    text = taotp.write(load("max.taotp"))
    out.print(text.rstrip())
    parsed = taotp.parse(text)
    out.print(f"\n  read back, after 0 2 1 it writes {run(parsed, '0 2 1').output}")


def train_adder(out: Console) -> tuple[int, int, Model]:
    """Train a model on addition, print when each digit was learned, and verify a sample of sums.

    Returns whether training failed its test, the number of wrong sums, and the model. If training
    is not possible, the model is a trained model of the package.
    """
    print_heading(
        out, "The same task, trained: 17,760 random weights, and 50,000 of the 1,000,000 sums"
    )
    if find_spec("torch") is None:
        out.print('  skipped: needs PyTorch, pip install -c constraints.txt ".[torch]"')
        return 0, 0, load("adder-3.safetensors")
    from .training import fit
    from .training.events import describe_event
    from .training.recipes import find_recipe

    task = load_task("addition:order=ones")
    training = fit(task, find_recipe("fast"))
    for event in training.events:
        if event.kind in ("digit learned", "generalized", "stable"):
            out.print(f"  step {event.step:>4}: {describe_event(event, answer_names(task))}")
    took = f"{training.steps} steps, {training.seconds:.1f} s"
    out.print(f"  {took}, {training.accuracy:.2%} of 10,000 test sums right")
    # all rows would take a quarter of the tour; PyTorch is twice as fast as NumPy
    trained = verify(training.model.torch(), task, sample=TRAINED_SAMPLE_ROWS)
    hand_made, program = _load_and_verify("addition:digits=3,order=ones")
    adders = ("trained", training.model, trained), ("hand-made", hand_made, program)
    for name, model, verdict in adders:
        wrong = f"{verdict.wrong:,} wrong of {verdict.checked:,} sums{_sample_parts(verdict)}"
        margin = f"worst margin {verdict.worst_margin:.2g}"
        out.print(f"  {name}: {count(model).total:,} parameters, {wrong}, {margin}")
    return int(training.accuracy < 1.0), trained.wrong, training.model


def prove_adders(out: Console) -> int:
    """Prove two adders of ten digits, which have too many inputs (10^20 pairs) to run."""
    print_heading(out, "Ten digits: 10^20 sums, proved and not sampled")
    failed = 0
    for ref in PROVED_REFS:
        model = load(ref)
        proof = prove(model, load_task(model))
        failed += not proof.holds
        n = count(model)
        outcome = f"{proof.result}, {proof.cases:,} cases, margin {proof.margin or 0:.2g}"
        size = f"{n.unique:,} numbers ({n.strict:,} strictly, {n.distinct:,} distinct)"
        out.print(f"  {ref}: {outcome}; made from {size}")
    return failed


def prove_longer_adder(out: Console) -> None:
    """Train several seeds on short numbers, and try to prove the right models for long numbers.

    Training can fail, so the number of seeds and the number of right models are printed.
    """
    few, many = SHORT_AND_LONG_DIGITS
    print_heading(
        out, f"Trained on sums of {few} digits: is it right on all 10^{2 * many} of {many}?"
    )
    if find_spec("torch") is None:
        out.print("  skipped: needs PyTorch")
        return
    from .parametrizations import build_parametrization
    from .training.api import fit_many
    from .training.recipes import find_recipe

    short = replace(find_recipe("coupled"), steps=1_000, lr=0.04)
    task, start = load_task(f"digit-addition:digits={few}"), time.perf_counter()
    runs = fit_many(
        task, short, TRAINED_SEEDS, parametrization=build_parametrization("coupled-adder")
    )
    took = time.perf_counter() - start
    right = [x.model.numpy() for x in runs if x.accuracy == 1]
    size = f"{count(runs[0].model).unique} numbers each"
    test = f"{len(right)} right on all of {short.test_rows:,} test sums"
    out.print(f"  {len(runs)} seeds at once, {size}, {took:.0f} s: {test} of {few} digits")
    for model in right:
        wide = extended_to(model, many)
        proof = prove(wide, load_task(wide))
        margin = f", {proof.cases:,} cases, margin {proof.margin or 0:.2g}" * proof.holds
        out.print(f"  the same numbers, {many} digits: {proof.result}{margin}")
        if proof.holds:
            return
    out.print("  none of these is right on all of them: another seed may be")


def compile_sort(out: Console) -> int:
    """Compile a short source and prove the compiled model."""
    print_heading(out, "Written down, compiled and proved: sort, for every text there is")
    text = library.source_paths()["sort"].read_text("utf-8")
    out.print(indent(text.split('"""')[-1].strip(), "  "), highlight=False, markup=False)
    model = load("lang/sort:vocab=20,length=20,dtype=float32")
    proof = prove(model, load_task(model))
    output = run(model, "17 3 11 3 |").output
    size = f"{count(model).total:,} parameters, {model.config.n_layers} layers"
    out.print(f"\n  {size}; after 17 3 11 3 | it writes {output}")
    out.print(f"  {proof.result} in {proof.dtype}: {proof.reason}")
    return int(not proof.holds)


def write_report(out: Console, adder: Model, page: Path) -> None:
    """Print the digits carried by each head of the trained adder; write a report of both adders."""
    print_heading(out, "Inside: what each head carries, and both adders side by side")
    task = load_task(adder)
    for head in head_names(adder):
        out.print(indent(str(interchange(adder, task, head, n=200)), "  "))
    models = [("hand-made", load("addition:digits=3,order=ones")), ("trained", adder)]
    path = report(models, ["123+456", "999+1", "500+500"]).save(page)
    out.print(f"  wrote {path}: open it in a browser and type a sum; it needs no network")


def write_walkthroughs(out: Console, page: Path) -> None:
    """Write the four walkthroughs of docs/explained to the folder of the report."""
    print_heading(out, "Explained: four walks, each beside its model, to read and to play with")
    from .report_page.explained import write_walkthroughs

    for title, path in write_walkthroughs(page.with_name(f"{page.stem}-explained")).items():
        out.print(f"  {title}: {path}")
    out.print("  they need no network either")


def measure_claims(out: Console) -> int:
    """Measure six published claims. Return the number of claims that differ from the record."""
    print_heading(out, "What books and papers claim, measured here")
    differ = 0
    for source, name, sentence in CLAIM_SENTENCES:
        c = ledger()[name]
        measured = c.measure()
        differ += not c.matches(measured)
        out.print(f"  {source}, {c.where.split(', ', source == NANDA)[-1]}: “{c.says}”")
        out.print(f"    {c.verdict}: {sentence(measured)}")
    every = f"`glassformer claims` measures all {len(ledger())}"
    out.print(f"  {len(CLAIM_SENTENCES)} claims, {differ} differ from our record; {every}")
    return differ

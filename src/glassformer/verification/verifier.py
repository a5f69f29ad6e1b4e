"""Verification of a model on the whole domain of a task, a random sample or given rows.

Rows are run in chunks, by one or several processes, in constant memory; interrupted runs resume.
With a sample, the task's edge cases are run and, optionally, the neighbors of its worst rows. These
parts are reported separately, since only the sample bounds the share of wrong inputs.
"""

from collections.abc import Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from ..core.checkpoint import digest
from ..core.decoding import decode
from ..core.model import Hook, Model
from ..registry import file_digest
from ..tasks.base import Task
from ..tasks.bigint_rows import unique_rows
from ..utils import limits
from ..utils.errors import GlassformerError
from ..utils.progress import Progress as Progress
from ..utils.progress import ProgressCallback
from ..utils.workers import check_workers
from . import neighbor_search as neighbors
from .chunks import ChunkedEvaluation, run_chunks
from .counts import CONFIDENCE, RowCounts, add_counts, count_rows, upper_bound
from .evaluation import MAX_EXHAUSTIVE_ROWS, chunk_size, decoded_margins, in_dtype, row_margins
from .evaluation import peak_activation_size as peak_size
from .resume_log import Journal, JournalState
from .verdict import COUNT_FIELDS, RecheckResult, versions
from .verdict import Verdict as Verdict

# Limit each of edge cases and random rows. A single row takes as long as hundreds in a batch.
ONE_BY_ONE_ROWS = 30
MAX_ONE_BY_ONE_TOKENS = 200  # limit on the answer tokens of each kind
MAX_COUNTED_ROWS = 10**15  # larger domains would take years


def verify(
    model: Model, task: Task, *, progress: ProgressCallback | None = None, **options: Any
) -> Verdict:
    """Verify a model with the options of `verify_events`, and return the verdict."""
    with closing(verify_events(model, task, **options)) as events:  # closing writes the journal
        for event in events:
            if isinstance(event, Verdict):
                return event
            if progress:
                progress(event)
    raise AssertionError("verify_events ends with a verdict")


def recheck(
    model: Model, verdict: Verdict, task: Task, *, where: str = "verdict", **options: Any
) -> RecheckResult:
    """Run the rows of a saved verdict again, with options of `verify`, and compare the results."""
    expected = f"{where} — expected a verdict of"
    if verdict.model != (sha256 := digest(model)):
        this = f"model {sha256[:12]}… ({model.name})"
        raise GlassformerError(f"{expected} {this}, got one of {verdict.model[:12]}…")
    if task.ref != verdict.task:
        raise GlassformerError(f"{expected} task {task.ref}, got one of {verdict.task}")
    return RecheckResult(verdict, verify(model, task, **verdict.recheck_options, **options))


def verify_events(
    model: Model, task: Task, *, rows: Any = None, sample: int | None = None, seed: int = 0,
    max_counterexamples: int = 10, chunk: int = 0, hook: Hook | None = None,
    exhaustive: bool = False, dtype: str = "", workers: int = 1, search: int = 0,
    journal: str | Path | None = None, cluster: str = "",
) -> Generator[Progress | Verdict, None, None]:  # fmt: skip
    """Verify a model; yield Progress, and the Verdict last. `gf.verify` describes the options."""
    for name, value, low, high in (
        ("sample", sample, 1, limits.MAX_SAMPLE_ROWS),
        ("seed", seed, 0, limits.MAX_SEED),
        ("max_counterexamples", max_counterexamples, 0, limits.MAX_COUNTEREXAMPLES),
        ("chunk", chunk, 0, limits.MAX_CHUNK_ROWS),
        ("workers", workers, 1, limits.MAX_PROCESSES),
        ("search", search, 0, limits.MAX_SEARCH_ROUNDS),
    ):
        if value is not None:
            limits.check_int_range(f"verify — {name}", value, low, high)
    check_workers("verify", cluster, workers)
    task.require(model.vocabulary)
    if rows is None:
        check_domain_size(task)
    if exhaustive:
        check_domain_size(task, MAX_COUNTED_ROWS, " with exhaustive", "; use sample")
    every = rows is None and (exhaustive or (sample is None and task.size <= MAX_EXHAUSTIVE_ROWS))
    sample = None if every or rows is not None else sample or task.default_sample_size
    rounds = search if sample and neighbors.supports_neighbor_search(task) else 0
    parts = {"domain": task.size} if every else {"given": len(rows)} if rows is not None else {}
    if sample:
        parts = {"edges": len(task.edges()), "sample": sample}
    if journal and (rows is not None or hook is not None):
        expected = "expected a domain or a sample, without a hook"
        raise GlassformerError(f"journal — {expected}, got given rows or a hook")
    model_digest, model = digest(model), in_dtype(model, dtype)
    limits.check_memory(f"verify — {chunk:,} rows at a time", 4 * chunk * peak_size(model, task))
    chunk, n_closest = chunk or chunk_size(model, task), neighbors.BEAM_WIDTH if rounds else 0
    kept = {"keep": max_counterexamples, "n_closest": n_closest}
    work = ChunkedEvaluation(
        model, task, parts, chunk=chunk, **kept, seed=seed, given=rows, hook=hook
    )
    source = file_digest(task.ref)
    run = {
        "model": model_digest, "task": task.ref, "dtype": model.dtype, "domain": task.size,
        "exhaustive": every, "seed": None if every else seed, "sample": sample, "search": rounds,
        "keep": max_counterexamples, "chunk": work.chunk,
        "versions": versions(model.dtype) | ({"task": source[:16]} if source else {}),
    }  # fmt: skip
    log = Journal(journal, run) if journal else None
    state = yield from _count_all_chunks(work, log, workers, cluster)
    counts = dict(state.counts)
    if rounds:
        counts["search"] = yield from _search_neighbors(work, state, rounds, seed)
    if rows is None and hook is None and (alone := _evaluate_one_by_one(work, counts, seed)).wrong:
        counts["alone"] = alone
    yield _build_verdict(work, counts, run)


def check_domain_size(
    task: Task, max_size: int = limits.MAX_DOMAIN_SIZE, when: str = "", hint: str = ""
) -> None:
    """Raise an error if a task has more inputs than `max_size`, by default a verdict's limit."""
    if task.size > max_size:
        limit, size = map(limits.format_count, (max_size, task.size))
        wanted = f"expected at most {limit} inputs{when}"
        raise GlassformerError(f"{task.ref} — {wanted}, got {size}{hint}")


def _count_all_chunks(
    work: ChunkedEvaluation, journal: Journal | None, workers: int, cluster: str
) -> Generator[Progress, None, JournalState]:
    """Run all chunks that are not in the journal. The journal is also written after errors."""
    state = journal.read(work) if journal else JournalState()
    if journal:
        journal.write(state, now=True)  # detects an unwritable file before the run
    try:
        for chunks, counts in run_chunks(work, state.remaining(work.n_chunks), workers, cluster):
            # a single assignment, so an interruption cannot count a chunk twice
            state = state.with_chunks(chunks, counts, work)
            if journal:
                journal.write(state)
            yield Progress(state.total("looked_at"), work.n_rows, state.total("wrong"))
    finally:
        if journal:
            journal.write(state, now=True)
    return state


def _search_neighbors(
    work: ChunkedEvaluation, state: JournalState, rounds: int, seed: int
) -> Generator[Progress, None, RowCounts]:
    start, total = add_counts(state.counts.values(), work.keep, work.n_closest), RowCounts()
    # all rounds together run about as many rows as the sample
    limit = neighbors.MAX_ROWS_PER_ROUND
    max_rows = min(limit, max(limit // 10, work.parts["sample"] // 4))
    for counts in neighbors.search_neighbors(work, start, rounds, max_rows, seed):
        total = add_counts([total, counts], work.keep)
        done = state.total("looked_at") + total.looked_at
        yield Progress(done, done, state.total("wrong") + total.wrong)
    return total


def _evaluate_one_by_one(
    work: ChunkedEvaluation, counts: Mapping[str, RowCounts], seed: int
) -> RowCounts:
    """Count rows that are right in a batch but wrong when run alone.

    Sums of a single row may have another order. The worst row, some edge cases and some random rows
    are decoded one at a time. Rows that were already counted as wrong are skipped.
    """
    task, edges = work.task, work.task.edges()
    answer_tokens = int(task.batch(task.rows(0, 1))[1].sum(1).max())
    n = min(ONE_BY_ONE_ROWS, max(3, MAX_ONE_BY_ONE_TOKENS // answer_tokens))
    worst = [c.worst[2] for c in counts.values() if c.worst[2]]
    worst_rows = np.array(worst, task.row_type).reshape(len(worst), len(task.radix))
    spread = edges[:: max(1, len(edges) // n)][:n]
    if sampled := work.parts.get("sample"):
        drawn = work.rows("sample", 0, min(sampled, n))
    else:
        drawn = task.sample(n, np.random.default_rng(seed))
    rows = np.concatenate([worst_rows, spread, drawn])
    rows = unique_rows(rows[task.defined(rows)])
    known_failures = {row for c in counts.values() for _, _, row in c.failures}
    rows = rows[[tuple(row) not in known_failures for row in rows.tolist()]]
    chunks = [rows[i : i + work.chunk] for i in range(0, len(rows), work.chunk)]
    right = [row_margins(work.model, *task.batch(chunk)) > 0 for chunk in chunks]
    rows = rows[np.concatenate(right)] if right else rows
    margins = np.array([decoded_margins(work.model, *task.batch(row[None])).min() for row in rows])
    wrong = ~(margins > 0)
    n = int(wrong.sum())
    margins = margins[wrong, None]
    return count_rows(rows[wrong], margins, np.full(n, ""), np.arange(n), n, work.keep, 0)


def _build_verdict(
    work: ChunkedEvaluation, counts: Mapping[str, RowCounts], run: dict[str, Any]
) -> Verdict:
    sample, alone = counts.get("sample"), counts.get("alone", RowCounts())
    total = add_counts([c for c in counts.values() if c is not alone], work.keep)
    bound = upper_bound(sample.wrong, sample.checked) if sample else None
    parts = {}
    for name, c in counts.items():
        parts[name] = {n: getattr(c, n) for n in COUNT_FIELDS} | {"worst_margin": c.worst[0]}
    names = ("checked", "wrong", "worst_margin")
    classes = {n: dict(zip(names, c, strict=True)) for n, c in total.classes.items() if n}
    # the first row with the smallest margin
    worst = min((c.worst for c in counts.values()), key=lambda w: w[0], default=RowCounts().worst)
    failures = [f for c in counts.values() for f in c.failures][: work.keep]
    return Verdict(
        **run, looked_at=total.looked_at, checked=total.checked, wrong=total.wrong + alone.wrong,
        worst_margin=worst[0], worst=_row_texts(work, worst[2]) if total.checked else None,
        counterexamples=[_row_texts(work, row, True) | {"margin": m} for m, _, row in failures],
        parts=parts, classes=classes, error_bound=bound, confidence=CONFIDENCE if sample else None,
    )  # fmt: skip


def _row_texts(work: ChunkedEvaluation, row: Any, decoded: bool = False) -> dict[str, Any]:
    """Return a row with its input, expected answer and, if `decoded`, decoded output as text."""
    task, text = work.task, work.task.vocabulary.decode
    tokens, answer = (a[0] for a in task.batch(np.array([row], task.row_type)))
    prompt = tokens[: int(answer.argmax())]
    texts = {"row": list(row), "input": text(prompt), "expected": text(tokens[answer])}
    if decoded:
        try:
            output = decode(work.model, prompt, int(answer.sum()), stop=task.stop)
            texts["got"] = text(output[len(prompt) :])
        except GlassformerError as e:
            texts["got"] = str(e)
    return texts

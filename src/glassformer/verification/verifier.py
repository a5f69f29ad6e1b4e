"""Verify a model on a task: the whole domain, a sample with a stated confidence, or given rows.

Rows are run in chunks, by one or several processes, in constant memory; interrupted runs resume. A
sample comes with the task's edge cases and, as an option, a search near its worst rows. These parts
are reported separately, as only the sample bounds the share of wrong inputs.
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
from ..utils.errors import GlassformerError
from ..utils.limits import (
    MAX_CHUNK_ROWS,
    MAX_COUNTEREXAMPLES,
    MAX_DOMAIN_SIZE,
    MAX_PROCESSES,
    MAX_SAMPLE_ROWS,
    MAX_SEARCH_ROUNDS,
    MAX_SEED,
    check_int_range,
    check_memory,
    format_count,
)
from ..utils.progress import Progress as Progress
from ..utils.progress import ProgressCallback
from ..utils.workers import check_workers
from .chunks import ChunkedEvaluation
from .confidence import CONFIDENCE, upper_bound
from .counts import RowCounts, add_counts, count_rows
from .evaluation import (
    MAX_EXHAUSTIVE_ROWS,
    chunk_size,
    decoded_margins,
    in_dtype,
    peak_activation_size,
    row_margins,
)
from .neighbor_search import BEAM_WIDTH, MAX_ROWS_PER_ROUND, supports_neighbor_search
from .neighbor_search import search_neighbors as search_near
from .parallel import run_chunks
from .resume_log import Journal, JournalState
from .verdict import Verdict as Verdict
from .verdict import versions

# of edge cases and of random rows each; one takes as long as hundreds in a batch
ONE_BY_ONE_ROWS = 30
MAX_ONE_BY_ONE_TOKENS = 200  # of each
MAX_COUNTED_ROWS = 10**15  # larger domains would take years


def verify(
    model: Model, task: Task, *, progress: ProgressCallback | None = None, **options: Any
) -> Verdict:  # fmt: skip
    """Verify a model and return the verdict.

    Args:
        model: The model.
        task: The task.
        progress: Called with each Progress.
        options: Options of `verify_events`.
    """
    with closing(
        verify_events(model, task, **options)
    ) as events:  # on interruption, writes the journal
        for event in events:
            if isinstance(event, Verdict):
                return event
            if progress:
                progress(event)
    raise AssertionError("check ends with a verdict")


def verify_events(
    model: Model, task: Task, *, rows: Any = None, sample: int | None = None, seed: int = 0,
    max_counterexamples: int = 10, chunk: int = 0, hook: Hook | None = None,
    exhaustive: bool = False, dtype: str = "", workers: int = 1, search: int = 0,
    journal: str | Path | None = None,
    cluster: str = "",
) -> Generator[Progress | Verdict, None, None]:  # fmt: skip
    """Verify a model; yield Progress, and the Verdict last.

    By default all rows of domains up to about a million are run; of larger ones the edge cases and
    a sample whose size the task chooses.

    Args:
        model: The model.
        task: The task.
        rows: Run these rows only.
        sample: Number of random rows to run, with the edge cases.
        seed: Seed of the sample and the search.
        max_counterexamples: Number of counterexamples to keep.
        chunk: Rows in one forward pass; 0: as many as fit into a few megabytes.
        hook: Hook that changes the model.
        exhaustive: Run the whole domain, whatever its size.
        dtype: Float type of the computation; "": the model's.
        workers: Number of processes. Scripts then need `if __name__ == "__main__"`.
        search: Rounds of search for failures near the worst rows of a sample.
        journal: File to resume from after an interruption.
        cluster: Address of a Dask cluster to use instead of processes.

    Raises:
        GlassformerError: An option is out of range, or model and task have different vocabularies.
    """
    for name, value, least, most in (
        ("sample", sample, 1, MAX_SAMPLE_ROWS),
        ("seed", seed, 0, MAX_SEED),
        ("max_counterexamples", max_counterexamples, 0, MAX_COUNTEREXAMPLES),
        ("chunk", chunk, 0, MAX_CHUNK_ROWS),
        ("workers", workers, 1, MAX_PROCESSES),
        ("search", search, 0, MAX_SEARCH_ROUNDS),
    ):
        if value is not None:
            check_int_range(f"verify — {name}", value, least, most)
    check_workers("verify", cluster, workers)
    task.require(model.vocabulary)
    if rows is None:
        check_domain_size(task)
    if exhaustive and (n := task.size) > MAX_COUNTED_ROWS:
        expected = f"expected at most {format_count(MAX_COUNTED_ROWS)} inputs with exhaustive"
        raise GlassformerError(f"{task.ref} — {expected}, got {format_count(n)}; use sample")
    every = rows is None and (exhaustive or (sample is None and task.size <= MAX_EXHAUSTIVE_ROWS))
    sample = None if every or rows is not None else sample or task.default_sample_size
    rounds = search if sample and supports_neighbor_search(task) else 0
    parts = {"domain": task.size} if every else {"given": len(rows)} if rows is not None else {}
    if sample:
        parts = {"edges": len(task.edges()), "sample": sample}
    if journal and (rows is not None or hook is not None):
        what = "expected a domain or a sample, without a hook, got given rows or a hook"
        raise GlassformerError(f"journal — {what}")
    named, judged = digest(model), in_dtype(model, dtype)
    check_memory(
        f"verify — {chunk:,} rows at a time", 4 * chunk * peak_activation_size(judged, task)
    )
    work = ChunkedEvaluation(
        judged, task, parts, chunk=chunk or chunk_size(judged, task), keep=max_counterexamples,
        n_closest=BEAM_WIDTH if rounds else 0, seed=seed, given=rows, hook=hook,
    )  # fmt: skip
    how = {
        "model": named,
        "task": task.ref,
        "dtype": judged.dtype,
        "domain": task.size,
        "exhaustive": every,
        "seed": None if every else seed,
        "sample": sample,
        "search": rounds,
        "keep": max_counterexamples,
        "chunk": work.chunk,
        "versions": versions(judged.dtype) | _task_source_version(task),
    }
    kept = Journal(journal, how) if journal else None
    state = yield from _count_all_chunks(work, kept, workers, cluster)
    found = dict(state.counts)
    if rounds:
        found["search"] = yield from _search_neighbors(work, state, rounds, seed)
    if rows is None and hook is None and (apart := _evaluate_one_by_one(work, found, seed)).wrong:
        found["alone"] = apart
    yield _build_verdict(work, found, how)


def _task_source_version(task: Task) -> dict[str, str]:
    """Return the hash of the file that defines the task, if any."""
    source = file_digest(task.ref)
    return {"task": source[:16]} if source else {}


def check_domain_size(task: Task) -> None:
    """Raise an error if a task has more inputs than a verdict can store."""
    if task.size > MAX_DOMAIN_SIZE:
        inputs, most = format_count(task.size), format_count(MAX_DOMAIN_SIZE)
        raise GlassformerError(f"{task.ref} — expected at most {most} inputs, got {inputs}")


def _count_all_chunks(
    work: ChunkedEvaluation, journal: Journal | None, workers: int, cluster: str
) -> Generator[Progress, None, JournalState]:
    """Run all chunks that are not in the journal. The journal is written however this ends."""
    state = journal.read(work) if journal else JournalState()
    if journal:
        journal.write(state, now=True)  # fails now, not in an hour, if it cannot be written
    try:
        for chunks, found in run_chunks(work, state.remaining(work.n_chunks), workers, cluster):
            # one assignment, so an interruption counts nothing twice
            state = state.with_chunks(chunks, found, work)
            if journal:
                journal.write(state)
            yield Progress(state.looked_at, work.n_rows, state.wrong)
    finally:
        if journal:
            journal.write(state, now=True)
    return state


def _search_neighbors(
    work: ChunkedEvaluation, state: JournalState, rounds: int, seed: int
) -> Generator[Progress, None, RowCounts]:
    begin, total = add_counts(state.counts.values(), work.keep, work.n_closest), RowCounts()
    # all rounds together about as many rows as the sample
    most = min(MAX_ROWS_PER_ROUND, max(MAX_ROWS_PER_ROUND // 10, work.parts["sample"] // 4))
    for near in search_near(work, begin, rounds, most, seed):
        total = add_counts([total, near], work.keep)
        done = state.looked_at + total.looked_at
        yield Progress(done, done, state.wrong + total.wrong)
    return total


def _evaluate_one_by_one(
    work: ChunkedEvaluation, found: Mapping[str, RowCounts], seed: int
) -> RowCounts:
    """Count rows that are right in a batch and wrong alone, where sums may have another order.

    The worst row, some edge cases and some random rows are decoded one at a time. Rows that were
    counted as wrong already are left out.
    """
    task, edges = work.task, work.task.edges()
    most = min(
        ONE_BY_ONE_ROWS,
        max(3, MAX_ONE_BY_ONE_TOKENS // int(task.batch(task.rows(0, 1))[1].sum(1).max())),
    )
    worst = [t.worst[2] for t in found.values() if t.worst[2]]
    first = np.array(worst, task.row_type).reshape(len(worst), len(task.radix))
    spread = edges[:: max(1, len(edges) // most)][:most]
    if sampled := work.parts.get("sample"):
        drawn = work.rows("sample", 0, min(sampled, most))
    else:
        drawn = task.sample(most, np.random.default_rng(seed))
    rows = np.concatenate([first, spread, drawn])
    # small domains repeat rows
    rows = unique_rows(rows[task.defined(rows)])
    known = {row for t in found.values() for _, _, row in t.failures}
    rows = rows[[tuple(row) not in known for row in rows.tolist()]]
    cut = [
        rows[i : i + work.chunk] for i in range(0, len(rows), work.chunk)
    ]  # the chunks they were run in
    right = [row_margins(work.model, *task.batch(part)) > 0 for part in cut]
    rows = rows[np.concatenate(right)] if right else rows
    gap = np.array([decoded_margins(work.model, *task.batch(row[None])).min() for row in rows])
    bad = ~(gap > 0)
    n = int(bad.sum())
    return count_rows(rows[bad], gap[bad, None], np.full(n, ""), np.arange(n), n, work.keep, 0)


def _build_verdict(
    work: ChunkedEvaluation, found: Mapping[str, RowCounts], how: dict[str, Any]
) -> Verdict:
    task, sample, again = work.task, found.get("sample"), found.get("alone", RowCounts())
    total = add_counts([t for t in found.values() if t is not again], work.keep)
    bound = None if sample is None else upper_bound(sample.wrong, sample.checked)
    parts, counts = {}, ("looked_at", "checked", "wrong")
    for name, t in found.items():
        parts[name] = {c: getattr(t, c) for c in counts} | {"worst_margin": t.worst[0]}
    names = ("checked", "wrong", "worst_margin")
    classes = {n: dict(zip(names, c, strict=True)) for n, c in total.classes.items() if n}
    # first of equal margins
    worst = min((t.worst for t in found.values()), key=lambda f: f[0], default=RowCounts().worst)
    shown = [f for t in found.values() for f in t.failures][: work.keep]
    return Verdict(
        **how,
        looked_at=total.looked_at,
        checked=total.checked,
        wrong=total.wrong + again.wrong,
        worst_margin=worst[0],
        worst=_row_texts(task, worst[2]) if total.checked else None,
        counterexamples=[
            _describe_failure(work.model, task, row, margin) for margin, _, row in shown
        ],
        parts=parts,
        classes=classes,
        error_bound=bound,
        confidence=None if bound is None else CONFIDENCE,
    )


def _row_texts(task: Task, row: tuple[int, ...]) -> dict[str, Any]:
    tokens, answer = (a[0] for a in task.batch(np.array([row], task.row_type)))
    words, first = task.vocabulary, int(answer.argmax())
    asked, expected = words.decode(tokens[:first]), words.decode(tokens[answer])
    return {"row": list(row), "input": asked, "expected": expected}


def _describe_failure(
    model: Model, task: Task, row: tuple[int, ...], margin: float
) -> dict[str, Any]:
    """Return a counterexample as text, with the output that the model decodes."""
    tokens, answer = (a[0] for a in task.batch(np.array([row], task.row_type)))
    prompt = tokens[: int(answer.argmax())]
    try:
        got = decode(model, prompt, int(answer.sum()), stop=task.stop)[len(prompt) :]
        said = task.vocabulary.decode(got)
    except GlassformerError as e:
        said = str(e)
    return {**_row_texts(task, row), "got": said, "margin": margin}

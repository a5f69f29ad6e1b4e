"""A grid of trainings, here or on a cluster (`gf.sweep`, the command sweep)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from .. import limits, own, refs
from ..calls import text_of
from ..cluster import check_workers
from ..errors import NEEDS_TORCH, GlassformerError
from ..finding import Finding
from ..limits import PROCESSES, RUNS, within
from ..records import alone, make_folder


@dataclass(frozen=True)
class Swept(Finding):
    """A sweep: what was trained, and where it is."""

    out: Path
    runs: int
    skipped: int  # they were done before
    failed: int
    lost: int  # the same call does them
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    problem: str = ""  # why it is not whole

    @property
    def holds(self) -> bool:
        return not self.problem

    @property
    def counted(self) -> str:
        counts = ("runs", "skipped", "failed", "lost")
        return ", ".join(f"{getattr(self, name)} {name}" for name in counts)

    def to_json(self) -> dict[str, Any]:
        results = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        counts = {name: getattr(self, name) for name in ("runs", "skipped", "failed", "lost")}
        return {"out": str(self.out), **counts, "results": results}

    def __str__(self) -> str:
        lines = [" ".join("–" if x is None else str(x) for x in row) for row in self.rows]
        said = f"{self.counted}; in {self.out / 'results.csv'}"
        return "\n".join([said, " ".join(self.columns), *lines, *filter(None, [self.problem])])


def sweep(
    spec: str | PathLike[str], out: str | PathLike[str] | None = None, *, cluster: str = "",
    workers: int | None = None, limit: int = 1_000, task: str = "",
    watch: Callable[[int, int], object] | None = None,
) -> Swept:  # fmt: skip
    """Trains a grid of settings, a TOML file (docs/sweeps.md). Called again, it skips what is done.

    `out`: a folder, by default SPEC-sweep beside the spec. `cluster`: the scheduler of a Dask
    cluster; else `workers` processes here, one a core (a script then needs `if __name__ ==
    "__main__"`). `limit`: more runs are refused. `task`: mine.py:Vote, if the spec names it: a spec
    alone never runs a file. `watch(done, of)` is told how far it is.
    """
    try:
        from ..training import pools
        from ..training import spec as specs
        from ..training import sweep as sweeps
    except ModuleNotFoundError:
        raise GlassformerError(f"sweep — {NEEDS_TORCH}") from None

    check_workers("sweep", cluster, workers or 1)
    within("sweep — limit", limit, 1, RUNS)
    within("sweep — workers", workers or 1, 1, PROCESSES)
    path = Path(text_of(spec, "sweep", "the path of a spec"))
    load_task = partial(own.load_task, task) if task else refs.load_task
    read = specs.read_spec(path, load_task, limit)
    folder = make_folder(text_of(out, "out", "a path") if out is not None else _beside(path))
    with alone(folder / "results.csv"):
        todo = sweeps.Sweep(read, folder)
        skipped = len(todo.rows)
        if todo.left:
            if cluster:
                done = pools.cluster(todo.left, load_task, cluster)
            else:
                done = pools.local(todo.left, load_task, workers or limits.cores())
            for _ in todo.collect(done):
                if watch:
                    watch(len(todo.rows), len(todo.order))
    rows = list(todo.rows.values())
    failed = sum(r["status"] in sweeps.FAILED for r in rows)
    lost = sum(r["status"] == sweeps.LOST for r in rows)
    problem = f"{lost} runs are lost; {sweeps.GO_ON}" if lost else ""
    if not lost and (given_up := [r for r in rows if r["status"] == sweeps.GIVEN_UP]):
        said = f"{len(given_up)} runs are given up after {sweeps.TRIES} tries"
        again = f"to try it again, remove {todo.runs / given_up[0]['id']}.json"
        problem = f"{said}; the first: {given_up[0]['error']}; {again}"
    return Swept(todo.out, len(todo.order), skipped, failed, lost, *todo.table(), problem)


def _beside(spec: Path) -> Path:
    return spec.with_name(f"{spec.stem}-sweep")

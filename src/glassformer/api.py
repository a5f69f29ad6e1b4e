"""The public functions: `import glassformer as gf; gf.verify("addition:digits=3")`.

Each function coerces its arguments (coerce.py) and calls one function of the package. The command
line, the server and notebooks call these functions and therefore raise the same errors. A `model`
is a ref, a path or a Model. A `task` is a ref or a Task and defaults to the model's task. `tokens`
is an input string or an array of token ids. Modules are imported when a function needs them.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from . import resolve
from .coerce import (
    ModelLike,
    RecipeLike,
    Rows,
    TaskLike,
    Tokens,
    as_folder,
    as_inputs,
    as_model,
    as_output,
    as_parametrization,
    as_path,
    as_recipe,
    as_rows,
    as_sample,
    as_task,
    as_task_if_known,
    as_tokens,
    as_verdict,
    checked_call,
    input_paths,
    load_user_ref,
    verdict_task,
)
from .core.model import Config, Model, shape_checked_hook
from .utils.errors import GlassformerError, did_you_mean, short_repr
from .utils.fileio import check_writable, exclusive_lock, remove, write_atomically
from .utils.limits import MAX_INSPECTED_ROWS, check_finite
from .utils.progress import ProgressCallback
from .utils.results import json_file

if TYPE_CHECKING:
    from rich.console import Console
    from typing_extensions import Unpack

    from .circuits.edges import GroundTruth
    from .circuits.obfuscation import ObfuscatedModel
    from .compiler.driver import Compiled
    from .core.backend import Array
    from .core.hooks import ActivationCache
    from .core.model import Hook
    from .core.param_count import ParameterCount
    from .generate import Generation
    from .guided_tour import TourResult
    from .interop.common import ExportResult, WrittenFile
    from .leaderboard.protocol import BoardVerdict
    from .leaderboard.table import AdderTable
    from .lens.compare import Comparison
    from .lens.explain import Explanation
    from .lens.inspect import Inspection, Subject
    from .lens.interventions.patch import Interchange, Patch
    from .lens.reference_sizes import SizeTable
    from .parametrizations.base import Parametrization
    from .proof import Accuracy, CertificateCheck, Equality, Proof
    from .published_claims import ClaimsResult
    from .puzzles.judgement import Judgment
    from .report_page.report import Report
    from .server.handle import ServerHandle
    from .server.server import StudioServer
    from .tasks.base import Task
    from .tasks.examine import Examination
    from .training import Training
    from .training.api import TrainingRun
    from .training.recipe_fields import RecipeFields
    from .training.studies.ablation_study import AblationStudy
    from .training.studies.sweep import SweepResult
    from .verification import Verdict
    from .verification.evaluation import Score
    from .verification.verdict import RecheckResult

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")
View = TypeVar("View", bound="Callable[[Subject], Any]")
Program = TypeVar("Program", bound="Callable[..., Any]")


def public_api(f: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that its arguments are checked (`coerce.checked_call`).

    It is defined here because `inspect.getsourcefile` returns the file of the decorator.
    """

    @wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return checked_call(f, args, kwargs)

    call.__module__ = __package__  # needed by pickle
    call.__name__ = call.__qualname__ = f.__name__.rstrip("_")
    return call


# ── models and tasks ───────────────────────────────────────────────────────────────────────────
@public_api
def load(ref: str | PathLike[str] | Mapping[str, Any]) -> Model:
    """Load a model from a ref or a path, or from a dict of its arrays.

    Args:
        ref: A program with options (`addition:digits=3`), a checkpoint, a `.taotp` or `.glass`
            file, a folder in GPT-2 format, or `mine.py:NAME`, which executes that file. A dict has
            the keys of the text language, such as the booklet's `params`: `tok_emb`, `pos_emb`,
            `out_emb`, `layers` and `lnf`, as lists or arrays.

    Returns:
        The model.

    Raises:
        GlassformerError: No model has this name, its file is damaged, or the arrays of the dict do
            not fit.

    Example:
        >>> import glassformer as gf
        >>> gf.load("min:vocab=20").config.d_vocab
        20
    """
    if isinstance(ref, Mapping):
        from .taotp import from_params

        return from_params(ref)
    return resolve.load(load_user_ref(ref))


@public_api
def load_task(ref: ModelLike | TaskLike) -> Task:
    """Load a task from a ref, or return the task of a model.

    Args:
        ref: A task ref, a Task, or a model that has a task.

    Returns:
        The task.

    Raises:
        GlassformerError: No task has this name, or the model has no task.

    Example:
        >>> import glassformer as gf
        >>> gf.load_task("addition:digits=3").size
        1000000
    """
    return resolve.load_task(ref if isinstance(ref, Model) else load_user_ref(ref))  # type: ignore[arg-type]


@public_api
def save(model: ModelLike, path: str | PathLike[str]) -> Path:
    """Write a model to a checkpoint, FILE.safetensors.

    Args:
        model: The model.
        path: The file to write.

    Returns:
        The path of the checkpoint.

    Raises:
        GlassformerError: The file name does not end in .safetensors, or the file cannot be written.

    Example:
        >>> import glassformer as gf
        >>> gf.save("min:vocab=20", "smallest.safetensors").name
        'smallest.safetensors'
    """
    from .core import checkpoint

    return checkpoint.save(as_model(model), as_path(path, "path"))


@public_api
def export(
    model: ModelLike, to: str, out: str | PathLike[str], tolerance: float = 1e-4
) -> ExportResult | WrittenFile:
    """Export a model to a file format and check the file with the library that reads it.

    Args:
        model: The model.
        to: safetensors, taotp, gpt2, torch, transformer-lens, onnx or adderboard.
        out: The file or folder to write.
        tolerance: Largest allowed difference between logits, relative to the largest logit. The
            answers must not change.

    Returns:
        The written path and the result of the check.

    Raises:
        GlassformerError: The format cannot represent the model, or the library's logits or
            answers differ.

    Example:
        >>> import glassformer as gf
        >>> written = gf.export("min:vocab=20", "taotp", "smallest.taotp")
        >>> gf.run(written.path, "6 2 7").output
        '2'
    """
    from .interop.common import bridge_names, check_target, write_as

    path = as_path(out, "out")
    check_finite("export — tolerance", tolerance)
    if not os.path.isdir(path):  # path.is_dir() would raise an error for long names
        check_writable(path, *input_paths([model]))
    if to in bridge_names():
        check_target(to, path)  # fail before building the model
    return write_as(as_model(model), to, path, tolerance)


@public_api
def compile_(
    source: str | PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    dtype: str = "",
    target: str = "",
    out: str | PathLike[str] | None = None,
) -> Compiled:
    """Compile a source to a model, and prove that both give the same output for every input.

    Args:
        source: Source code, the path of a `.glass` file, or a ref (`lang/sort:vocab=20`).
        options: Options of the source.
        dtype: Float type of the weights, "float64" or "float32".
        target: "gpt2" for a model that GPT-2 can represent unchanged.
        out: FILE.safetensors for the model and its source.

    Returns:
        The compiled model and its proof.

    Raises:
        GlassformerError: The source has an error, or no source has this name.

    Example:
        >>> import glassformer as gf
        >>> compiled = gf.compile("tokens = [*'ab']; length = 9; emit = first(token, default='a')")
        >>> compiled.model.config.n_layers
        1
    """
    from .compiler.source_refs import compile_source

    is_text = isinstance(source, str) and "\n" in source
    path = as_output(out, ".safetensors", None if is_text else source)
    compiled = compile_source(source, options, dtype, target)
    if path:
        save(compiled, path)
    return compiled


@public_api
def list_(kind: str = "programs", ref: str = "") -> Any:
    """List names: programs, tasks, parametrizations, recipes, views, hooks of a model and others.

    Args:
        kind: The kind of names, such as "programs", "tasks" or "hooks".
        ref: The model, if `kind` is "hooks". If `kind` is "recipes", "lang" or "levels": the name
            of the entry to return.

    Returns:
        A list of names; with the name of an entry, the Recipe, source code or Level.

    Raises:
        GlassformerError: The kind or the name is unknown.

    Example:
        >>> import glassformer as gf
        >>> "min" in gf.list()
        True
    """
    from functools import partial

    from . import registry
    from .compiler import source_refs as named
    from .lens.inspect import VIEWS
    from .published_claims import ledger
    from .puzzles import level, levels
    from .training.recipe import RECIPE_FIELDS
    from .training.recipes import RECIPES, find_recipe

    kinds: dict[str, Callable[[], Iterable[str]]] = {
        **{f"{kind}s": partial(registry.entries, kind) for kind in registry.REGISTRY},
        "recipes": lambda: [*RECIPES, "auto"],
        "views": lambda: VIEWS,
        "claims": ledger,
        "trained": resolve.trained_models,
        "lang": named.library_refs,
        "levels": levels,
        "fields": lambda: RECIPE_FIELDS,
        "hooks": lambda: hook_names(ref),
    }
    if kind not in kinds:
        hint = did_you_mean(kind, kinds, 1, 0.6, "expected one of")
        raise GlassformerError(f"list {short_repr(kind)} — no such list; {hint}")
    prefix = registry.LIBRARY_PREFIX
    one: dict[str, Callable[[], Any]] = {
        "recipes": lambda: find_recipe(ref),
        "levels": lambda: level(ref),
        "lang": lambda: named.resolve_source(prefix + ref.removeprefix(prefix)).text,
    }
    if ref != "" and kind in one:
        return one[kind]()
    if kind != "hooks" and ref != "":
        raise GlassformerError(f"list {kind} — expected no further argument, got {short_repr(ref)}")
    if kind == "hooks" and ref == "":
        raise GlassformerError("list hooks — expected a model after it: addition, …")
    ordered = kind in ("hooks", "levels", "fields")
    return list(kinds[kind]()) if ordered else sorted(kinds[kind]())


# ── running ────────────────────────────────────────────────────────────────────────────────────
@public_api
def run(
    model: ModelLike,
    text: str = "",
    *,
    steps: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    rng: np.random.Generator | None = None,
    trace: bool = False,
    interpret: bool = False,
) -> Generation:
    """Generate the output of a model for an input string.

    Args:
        model: The model.
        text: The input; it may contain the beginning of the answer.
        steps: Maximum number of tokens to generate.
        temperature: Sampling temperature; 0 is greedy decoding.
        top_k: Sample from the k most likely tokens.
        rng: Random generator for sampling.
        trace: Also return the top tokens and each head's attention at every step.
        interpret: Also return every value of the source of a compiled model.

    Returns:
        The input, the output and their tokens.

    Raises:
        GlassformerError: The model cannot read the input, or an argument is out of range.

    Example:
        >>> import glassformer as gf
        >>> gf.run("addition:digits=3", "127+458").output
        '0585'
    """
    from . import generate

    return generate.run(
        as_model(model), text, steps=steps, temperature=temperature, top_k=top_k, rng=rng,
        trace=trace, interpret=interpret,
    )  # fmt: skip


@public_api
def decode(
    model: ModelLike,
    tokens: Tokens,
    steps: int,
    *,
    stop: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    rng: np.random.Generator | None = None,
    cached: bool = True,
) -> Array:
    """Generate up to `steps` tokens after a prompt.

    Args:
        model: The model.
        tokens: Prompt, as a string or as token ids of shape [T] or [B,T].
        steps: Maximum number of tokens to generate.
        stop: Stop token; it ends generation.
        temperature: Sampling temperature; 0 is greedy decoding.
        top_k: Sample from the k most likely tokens.
        rng: Random generator for sampling.
        cached: Use a key-value cache.

    Returns:
        Token ids of the prompt and the generated tokens, of shape [T+n] or [B,T+n], n <= steps.

    Raises:
        GlassformerError: A token or an argument is out of range, or the logits are not finite.

    Example:
        >>> import glassformer as gf
        >>> gf.decode("min:vocab=20", "6 2 7", 1).tolist()
        [6, 2, 7, 2]
    """
    from .core import decoding

    resolved = as_model(model)
    return decoding.decode(
        resolved, as_tokens(tokens, resolved), steps, stop=stop, temperature=temperature,
        top_k=top_k, rng=rng, cached=cached,
    )  # fmt: skip


@public_api
def forward(
    config: Config,
    weights: Mapping[str, Any],
    tokens: Any,
    hook: Hook | None = None,
    start: int = 0,
    last: int | None = None,
) -> Array:
    """Compute the logits of a batch of tokens from a config and weights.

    Args:
        config: The config of the model.
        weights: Weight arrays by name.
        tokens: Token ids of shape [B,T].
        hook: Function (name, value) -> value that receives every activation and may replace it.
        start: Position of the first token.
        last: Number of final positions to return logits for. Defaults to all positions.

    Returns:
        Logits of shape [B,T,V], or [B,last,V] if `last` is set.

    Raises:
        GlassformerError: The weights do not match the config, or an argument is out of range.

    Example:
        >>> import glassformer as gf
        >>> model = gf.load("min:vocab=20")
        >>> gf.forward(model.config, model.weights, [[6, 2, 7]]).shape
        (1, 3, 20)
    """
    from .core import model as model_
    from .core.weight_shapes import check_weights as check_shapes

    if not isinstance(weights, Mapping):
        raise GlassformerError(
            f"forward — expected weights as a dict of arrays, got {short_repr(weights)}"
        )
    tokens = model_.check_tokens(config, tokens, start)
    if tokens.ndim != 2:
        raise GlassformerError(f"tokens — expected shape [B,T], got {[*tokens.shape]}")
    model_.check_last(last, tokens)
    hook = None if hook is None else shape_checked_hook(hook)
    return model_.forward(config, check_shapes(config, weights), tokens, hook, start, last)


@public_api
def record(
    model: ModelLike, tokens: Tokens, last: int | None = None
) -> tuple[Array, ActivationCache]:
    """Run a model and record all its activations.

    Args:
        model: The model.
        tokens: Input, as a string or as token ids of shape [T] or [B,T].
        last: Number of final positions to return logits for. Defaults to all positions.

    Returns:
        The logits and the activation cache.

    Raises:
        GlassformerError: The input does not fit the model, or `last` is out of range.

    Example:
        >>> import glassformer as gf
        >>> logits, cache = gf.record("min:vocab=20", "6 2 7")
        >>> cache["pattern", 0].shape
        (1, 1, 3, 3)
    """
    from .core import hooks

    resolved = as_model(model)
    return hooks.record(resolved, as_tokens(tokens, resolved), last)


@public_api
def hook(model: ModelLike, table: Mapping[str, Callable[[Any], Any]]) -> Hook:
    """Return a hook that applies a function to each activation named in `table`.

    Args:
        model: The model.
        table: Activation name -> function from the value to its replacement.

    Returns:
        A hook for `forward`, `verify` and other functions.

    Raises:
        GlassformerError: The model has no activation with this name.

    Example:
        >>> import glassformer as gf
        >>> no_heads = gf.hook("reverse", {"blocks.0.hook_attn_out": lambda value: 0 * value})
        >>> gf.verify("reverse", sample=100, hook=no_heads).holds
        False
    """
    from .core import hooks

    return hooks.replace_activations(as_model(model), table)


@public_api
def hook_names(model: ModelLike | Config) -> list[str]:
    """Return the names of all activations of a model, in TransformerLens notation.

    Returns:
        The names, in the order of the forward pass.

    Raises:
        GlassformerError: No model has this name.

    Example:
        >>> import glassformer as gf
        >>> gf.hook_names("min:vocab=20")[0]
        'hook_embed'
    """
    from .core import hooks

    return hooks.hook_names(model if isinstance(model, Config) else as_model(model))


# ── checking ───────────────────────────────────────────────────────────────────────────────────
@public_api
def count(model: ModelLike) -> ParameterCount:
    """Count the parameters of a model by each counting rule.

    Returns:
        The numbers of parameters by counting rule.

    Raises:
        GlassformerError: The theta of the model does not expand to its weights.

    Example:
        >>> import glassformer as gf
        >>> gf.count("addition:digits=3").unique
        160
    """
    from .core import param_count

    return param_count.count(as_model(model))


@public_api
def sizes(model: ModelLike, name: str = "this model") -> SizeTable:
    """Return the size of a model beside those of GPT-2 small and Llama 3 8B, with their sources.

    Args:
        model: The model.
        name: Name of the model in the table.

    Returns:
        The sizes, the model's first.

    Raises:
        GlassformerError: There is no such model.

    Example:
        >>> import glassformer as gf
        >>> [size.layers for size in gf.sizes("addition:digits=3").sizes]
        [1, 12, 32]
    """
    from .lens.reference_sizes import SizeTable, size_table

    return SizeTable(size_table(as_model(model), name))


@public_api
def verify(
    model: ModelLike, task: TaskLike | None = None, *, rows: Rows | None = None,
    sample: int | None = None, seed: int = 0, max_counterexamples: int = 10, chunk: int = 0,
    hook: Hook | None = None, exhaustive: bool = False, dtype: str = "", workers: int = 1,
    search: int = 0, out: str | PathLike[str] | None = None,
    journal: str | PathLike[str] | None = None, cluster: str = "",
    progress: ProgressCallback | None = None,
) -> Verdict:  # fmt: skip
    """Run a model on the whole domain of a task, or on a sample with a confidence bound.

    By default, domains of up to about a million inputs are run in full. For larger domains, the
    edge cases and a random sample are run.

    Args:
        model: The model.
        task: The task. Defaults to the model's task.
        rows: Run only these rows.
        sample: Number of random rows to run, besides the edge cases.
        seed: Seed of the sample.
        max_counterexamples: Maximum number of counterexamples to return.
        chunk: Rows per forward pass. 0 chooses a number from the size of the model.
        hook: Function (name, value) -> value that may replace activations.
        exhaustive: Run the whole domain even if it is large.
        dtype: Float type to run in.
        workers: Number of processes. (A script then needs `if __name__ == "__main__"`.)
        search: Rounds of search for failures near the worst rows of a sample.
        out: FILE.json to save the verdict; an interrupted call resumes from FILE.json.journal.
        journal: A file to resume from after an interruption.
        cluster: Address of a Dask cluster to run on.
        progress: Called after each chunk of inputs.

    Returns:
        The verdict: numbers of checked and wrong inputs, margins and counterexamples.

    Raises:
        GlassformerError: The task does not fit the model, or arguments contradict each other.

    Example:
        >>> import glassformer as gf
        >>> gf.verify("addition:digits=2").wrong
        0
    """
    from . import verification

    if exhaustive and sample is not None:
        raise GlassformerError("verify — expected exhaustive or sample, got both; leave one out")
    path = as_output(out, ".json", model, task)
    resolved = as_model(model)
    goal = as_task(task, resolved)
    with _resumable(path, journal, rows is None and hook is None) as log:
        verdict = verification.verify(
            resolved,
            goal,
            rows=as_rows(rows, goal),
            sample=sample,
            seed=seed,
            max_counterexamples=max_counterexamples,
            chunk=chunk,
            hook=None if hook is None else shape_checked_hook(hook),
            exhaustive=exhaustive,
            dtype=dtype,
            workers=workers,
            search=search,
            cluster=cluster,
            progress=progress,
            journal=log,
        )
        if path:
            verdict.save(path)
    return verdict


@contextmanager
def _resumable(
    out: Path | None, journal: str | PathLike[str] | None, keeps_journal: bool = True
) -> Iterator[Path | None]:
    """Lock `out` and yield the path of the journal. Remove a default journal at the end."""
    passed = None if journal is None else as_path(journal, "journal")
    if out is not None and passed is not None and out.absolute() == passed.absolute():
        raise GlassformerError(f"out — expected another file than the journal, got {out}")
    default = out.with_name(out.name + ".journal") if out and not passed and keeps_journal else None
    with exclusive_lock(out):
        yield passed or default
        if default:
            remove(default)


@public_api
def recheck(
    model: ModelLike,
    verdict: Verdict | str | PathLike[str],
    task: TaskLike | None = None,
    *,
    workers: int = 1,
    out: str | PathLike[str] | None = None,
    journal: str | PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> RecheckResult:
    """Run the rows of a saved verdict again and compare.

    Args:
        model: The model.
        verdict: A Verdict, or the path of a saved one.
        task: The task. Defaults to the task in the verdict, whose ref never executes a file.
        workers: Number of processes.
        out: FILE.json to save the new verdict; an interrupted call resumes from FILE.json.journal.
        journal: A file to resume from after an interruption.
        progress: Called after each chunk of inputs.

    Returns:
        The saved and the new verdict, and their differences.

    Raises:
        GlassformerError: The verdict is damaged, or is of another model or task.

    Example:
        >>> import glassformer as gf
        >>> verdict = gf.verify("addition:digits=2", out="verdict.json")
        >>> gf.recheck("addition:digits=2", "verdict.json").confirmed
        True
    """
    from .verification.verifier import recheck as recheck_

    path = as_output(out, ".json", model, verdict, task)
    resolved, saved = as_model(model), as_verdict(verdict)
    goal = verdict_task(task, saved, resolved)
    where = str(verdict) if isinstance(verdict, (str, PathLike)) else "verdict"
    with _resumable(path, journal) as log:
        rechecked = recheck_(
            resolved, saved, goal, workers=workers, progress=progress, where=where, journal=log
        )
        if path:
            rechecked.rerun.save(path)
    return rechecked


@overload
def prove(
    model: ModelLike,
    task: TaskLike | None = None,
    *,
    method: Literal["auto", "certificate", "enumeration"] = "auto",
    independent_check: bool | None = None,
    seed: int = 0,
    out: str | PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Proof: ...
@overload
def prove(
    model: ModelLike,
    task: TaskLike | None = None,
    *,
    check: str | PathLike[str] | Mapping[str, Any],
    independent_check: bool | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> CertificateCheck: ...
@overload
def prove(
    model: ModelLike,
    task: TaskLike | None = None,
    *,
    accuracy: Literal[True],
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Accuracy: ...
@overload
def prove(
    model: ModelLike,
    task: TaskLike | None = None,
    *,
    equal_to: ModelLike,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Equality: ...
@public_api
def prove(
    model: ModelLike,
    task: TaskLike | None = None,
    *,
    method: Literal["auto", "certificate", "enumeration"] = "auto",
    check: str | PathLike[str] | Mapping[str, Any] | None = None,
    independent_check: bool | None = None,
    accuracy: bool = False,
    equal_to: ModelLike | None = None,
    seed: int = 0,
    out: str | PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> Proof | CertificateCheck | Accuracy | Equality:
    """Decide whether a model is right on all inputs: proved, refuted or unknown.

    Args:
        model: The model.
        task: The task. Defaults to the model's task.
        method: "enumeration" runs every row; "certificate" bounds all cases (docs/proof.md).
        check: A certificate, or its file, to check instead of proving.
        independent_check: Check with a second checker that shares no code with the first. None
            uses it if it supports the model; True raises an error if it does not.
        accuracy: Bound the number of right inputs instead.
        equal_to: A second model. Decide whether both models give equal answers to every input.
        seed: Seed of the search for a counterexample.
        out: FILE.json for the certificate. A proof without a certificate raises an error.
        progress: Called with each stage and the progress of the proof.

    Returns:
        A Proof; a CertificateCheck with `check`, an Accuracy with `accuracy`, an Equality with
        `equal_to`.

    Raises:
        GlassformerError: The task does not fit the model, or arguments contradict each other.

    Example:
        >>> import glassformer as gf
        >>> gf.prove("addition:digits=2").result
        'proved'
    """
    from .proof.requests import prove as run_proof

    if out is not None and (check is not None or accuracy or equal_to is not None):
        raise GlassformerError(
            "prove — out: expected no check, accuracy or equal_to, which write no certificate; "
            "leave out `out`"
        )
    path = as_output(out, ".json", model, task)
    if isinstance(check, (str, PathLike)):
        check = as_path(check, "check")
    resolved = as_model(model)
    result = run_proof(
        resolved, as_task(task, resolved), method=method, check=check,
        independent=independent_check, accuracy=accuracy,
        equal_to=None if equal_to is None else as_model(equal_to), seed=seed,
        for_file=path is not None, progress=progress,
    )  # fmt: skip
    if path and (certificate := getattr(result, "certificate", None)):
        write_atomically(path, json_file(certificate))
    return result


@public_api
def check_task(task: ModelLike | TaskLike) -> Examination:
    """Examine a task: show examples and classes, and compare its declarations with its examples.

    Returns:
        The examination, with the problems of the task.

    Raises:
        GlassformerError: No task has this name, or none of its rows has a right answer.

    Example:
        >>> import glassformer as gf
        >>> gf.check_task("addition:digits=2").holds
        True
    """
    from .tasks.examine import examine

    return examine(as_task(None, task) if isinstance(task, Model) else as_task(task))


@public_api
def check_puzzle(level: str, solution: str | PathLike[str], seconds: int = 120) -> Judgment:
    """Judge the solution of a puzzle on every question of its level, or by proof.

    Args:
        level: The name or the title of the level.
        solution: A path that ends in .taotp or .glass, or the source code itself.
        seconds: Time limit in seconds.

    Returns:
        The judgment: right or wrong, a counterexample, and the score.

    Raises:
        GlassformerError: No level has this name, or the file of the solution cannot be read.

    Example:
        >>> import glassformer as gf
        >>> stub = gf.list("levels", "traffic-light").stub
        >>> gf.check_puzzle("traffic-light", stub).wrong
        120
    """
    from .puzzles.solutions import check_solution

    return check_solution(level, solution, seconds)


@public_api
def claims(
    names: str | Sequence[str] = (),
    *,
    slow: bool = False,
    progress: ProgressCallback | None = None,
) -> ClaimsResult:
    """Measure published figures and compare them with the recorded values.

    Args:
        names: Names of claims, or prefixes of names. Defaults to all claims.
        slow: Also measure slow claims, which take minutes.
        progress: Called before each claim.

    Returns:
        The measurements, with the recorded values.

    Raises:
        GlassformerError: No claim has this name.

    Example:
        >>> import glassformer as gf
        >>> gf.claims("booklet-2.4-parameters").measurements[0].measured
        72
    """
    from . import published_claims

    return published_claims.claims(names, slow, progress)


@public_api
def adderboard(
    model: ModelLike | None = None,
    *,
    table: bool = False,
    task: TaskLike | None = None,
    dtype: str = "",
    max_counterexamples: int = 10,
    trust: bool = False,
    sandbox: bool = True,
    progress: ProgressCallback | None = None,
) -> AdderTable | BoardVerdict:
    """Run AdderBoard's test on a model: ten edge cases and 10,000 pairs of ten digits.

    Args:
        model: The model, or FILE.py of a submission.
        table: Return the table of Glassformer's adders with this model added. No code is executed.
        task: The task. Defaults to the model's task.
        dtype: Float type to run in.
        max_counterexamples: Maximum number of counterexamples to return.
        trust: Execute the code of FILE.py, in a sandbox.
        sandbox: False executes a trusted file without a sandbox, with all rights of the user.
        progress: Called with the progress of the test. The first stage describes how FILE.py will
            be executed.

    Returns:
        The verdict of the test, or the table.

    Raises:
        GlassformerError: FILE.py would be executed without `trust=True`, or arguments contradict
            each other.

    Example:
        >>> import glassformer as gf
        >>> gf.adderboard("adder-least").holds
        True
    """
    from .leaderboard import boards

    (ref,) = input_paths([model]) or [""]
    file = ref if ref.endswith(".py") else ""
    resolved = None if file or model is None else as_model(model)
    name = ref or (resolved.name if resolved else "")
    goal: Any = as_task(task, resolved) if resolved else task

    def load_adder(other: str) -> tuple[Model, Task]:
        adder = resolve.load(other)
        return adder, as_task(task if other == model else None, adder)

    return boards.run_adderboard(
        resolved,
        goal,
        load_adder,
        name=name,
        ref=model if isinstance(model, str) else "",
        file=file,
        table=table,
        dtype=dtype,
        max_counterexamples=max_counterexamples,
        trust=trust,
        sandbox=sandbox,
        progress=progress,
    )


# ── looking inside ─────────────────────────────────────────────────────────────────────────────
@public_api
def explain(model: ModelLike, tokens: Tokens) -> Explanation:
    """Explain a model's next token by the contribution of each component to its margin.

    Args:
        model: The model.
        tokens: Input, as a string or as token ids of shape [T].

    Returns:
        The predicted token, its margin, and the contributions of heads, neurons and slots.

    Raises:
        GlassformerError: The input does not fit the model, or its logits are not finite.

    Example:
        >>> import glassformer as gf
        >>> gf.explain("min:vocab=20", "6 2 7").winner
        '2'
    """
    from .lens.explain import explain as explain_

    resolved = as_model(model)
    return explain_(resolved, as_tokens(tokens, resolved))


@public_api
def inspect(
    model: ModelLike,
    task: TaskLike | None = None,
    rows: Rows | None = None,
    prompt: Tokens | None = None,
    only: str | Sequence[str] = (),
    progress: ProgressCallback | None = None,
    *,
    sample: int | None = None,
    seed: int = 0,
    inputs: Sequence[Tokens] = (),
    matrices: Sequence[str] = (),
    before: ModelLike | None = None,
) -> Inspection:
    """Compute all applicable views of a model's weights and activations.

    Args:
        model: The model.
        task: The task that provides inputs. Models without a task get random tokens.
        rows: Rows of the task to use.
        prompt: The input for views of a single input.
        only: Names of views to compute, or FILE.py:NAME.
        progress: Called before each view.
        sample: Number of random rows. Defaults to 10,000.
        seed: Seed of the rows.
        inputs: Inputs to compare in the view `heads`: the attention from the last position of
            each. The first is the default of `prompt`.
        matrices: Names of weight matrices for the view `weights`. Defaults to all.
        before: An earlier state of the model, shown above it in the views `tokens` and
            `positions`. "start" draws the initial weights again from its recipe and seed.

    Returns:
        The results by view, and the reasons for skipped views.

    Raises:
        GlassformerError: A view is unknown, or one of the views in `only` does not apply.

    Example:
        >>> import glassformer as gf
        >>> inside = gf.inspect("modular-addition:plus=true", only="heads", inputs=["7+9", "90+90"])
        >>> [*inside["heads"].inputs]
        ['7 + 9 =', '90 + 90 =']
    """
    from .lens.inspect import inspect as inspect_

    only = [load_user_ref(name) for name in ([only] if isinstance(only, str) else only)]
    resolved = as_model(model)
    goal = as_task_if_known(task, resolved)
    rows = as_sample(goal, rows, sample, seed, MAX_INSPECTED_ROWS)
    chosen, earlier = as_inputs(inputs, resolved, goal), None
    if isinstance(before, str) and before == "start":
        from .training.setup import initial_model

        earlier = initial_model(resolved)
    elif before is not None:
        earlier = as_model(before)
    tokens = None if prompt is None else as_tokens(prompt, resolved, goal)
    if tokens is None and chosen:
        tokens = chosen[0]
    return inspect_(resolved, goal, rows, tokens, only, progress, chosen, matrices, earlier)


@public_api
def view(name: str, gist: Callable[[Any], str] | None = None) -> Callable[[View], View]:
    """Register a function that takes a Subject as a view: `@gf.view("name")`.

    Returns:
        A decorator that returns the function.

    Raises:
        GlassformerError: The name is invalid or taken, or the decorated object is not a function.

    Example:
        >>> import glassformer as gf
        >>> @gf.view("n-weights")
        ... def n_weights(subject):
        ...     return sum(w.size for w in subject.model.weights.values())
        >>> gf.inspect("min:vocab=20", only="n-weights")["n-weights"]
        96
    """
    from .lens.inspect import view as view_

    return view_(name, gist)  # type: ignore[return-value]


@public_api
def compare(
    a: ModelLike,
    b: ModelLike,
    task: TaskLike | None = None,
    rows: Rows | None = None,
    *,
    sample: int | None = None,
    names: Sequence[str] = (),
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Comparison:
    """Compare two models on one task: answers, attention, and the role of each component.

    Args:
        a: The first model.
        b: The second model.
        task: The task. Defaults to the common task of both models.
        rows: Rows of the task to use.
        sample: Number of random rows.
        names: Names of the two models.
        seed: Seed of the rows.
        progress: Called as rows are run.

    Returns:
        The comparison.

    Raises:
        GlassformerError: The models do not fit the task, or there are no rows.

    Example:
        >>> import glassformer as gf
        >>> gf.compare("addition:digits=1", "addition:digits=1,variant=book").differ
        0
    """
    from .lens.compare import compare as compare_

    one, other = as_model(a), as_model(b)
    goal = as_task(task, one, other)
    rows = as_sample(goal, rows, sample, seed)
    return compare_(one, other, goal, rows, names=names, seed=seed, progress=progress)


@public_api
def ablate(
    model: ModelLike,
    component: str,
    method: str = "zero",
    *,
    task: TaskLike | None = None,
    rows: Rows | None = None,
    seed: int = 0,
) -> Score:
    """Score a model with one component ablated.

    To train models without a component, see `ablation_study`.

    Args:
        model: The model.
        component: Name of a component: "head 0.1", "mlp 0", "neuron 0.3", …
        method: "zero", "mean" or "resample".
        task: The task. Defaults to the model's task.
        rows: Rows of the task to use.
        seed: Seed of the rows, and of resampling.

    Returns:
        The accuracy of the ablated model.

    Raises:
        GlassformerError: The component or the method does not exist.

    Example:
        >>> import glassformer as gf
        >>> gf.ablate("addition:digits=1", "head 0.0").accuracy < 1
        True
    """
    from .lens.interventions.ablate import ablate as ablate_

    resolved = as_model(model)
    goal = as_task(task, resolved)
    return ablate_(resolved, goal, component, method, as_rows(rows, goal), seed)


@public_api
def patch(
    model: ModelLike,
    clean: Tokens,
    corrupted: Tokens,
    names: str | Sequence[str],
    positions: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    at: int = -1,
) -> Patch:
    """Run a corrupted input with activations patched in from a clean input.

    Args:
        model: The model.
        clean: The input string or tokens that provide the activations.
        corrupted: The input string or tokens to run.
        names: Components or activations to patch.
        positions: Positions to patch. Defaults to all positions.
        heads: Heads to patch, for activations with a head axis. Defaults to all heads.
        at: Position at which logits are measured.

    Returns:
        The logits of the clean, the corrupted and the patched run.

    Raises:
        GlassformerError: A name is unknown, an index is out of range, or both inputs give equal
            predictions.

    Example:
        >>> import glassformer as gf
        >>> patched = gf.patch("addition:digits=1", "4+8=", "4+3=", "head 0.0")
        >>> round(patched.recovered, 3)
        1.0
    """
    from .lens.interventions.patch import patch as patch_

    resolved = as_model(model)
    texts = as_tokens(clean, resolved), as_tokens(corrupted, resolved)
    return patch_(resolved, *texts, names, positions, heads, at)


@public_api
def attribute(
    model: ModelLike,
    clean: Tokens,
    corrupted: Tokens,
    name: str,
    positions: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    at: int = -1,
    steps: int = 0,
) -> float:
    """Estimate the effect of `patch` by gradients: attribution patching.

    Args:
        model: The model.
        clean: The input string or tokens that provide the activations.
        corrupted: The input string or tokens to run.
        name: A component or an activation.
        positions: Positions to attribute to. Defaults to all positions.
        heads: Heads to attribute to, for activations with a head axis. Defaults to all heads.
        at: Position at which logits are measured.
        steps: Number of steps of integrated gradients. 0 uses a single gradient.

    Returns:
        The estimated share of the logit difference that the patch recovers.

    Raises:
        GlassformerError: A name is unknown, an index is out of range, both inputs give equal
            predictions, or the component spans several activations.

    Example:
        >>> import glassformer as gf
        >>> round(gf.attribute("min:vocab=20", "6 2 7", "6 3 7", "head 0.0"), 1)
        1.0
    """
    from .lens.interventions.attribute import attribute as attribute_

    resolved = as_model(model)
    texts = as_tokens(clean, resolved), as_tokens(corrupted, resolved)
    return attribute_(resolved, *texts, name, positions, heads, at, steps)


@public_api
def interchange(
    model: ModelLike, component: str, n: int = 500, *, task: TaskLike | None = None, seed: int = 0
) -> Interchange:
    """Swap a component's activation between pairs of inputs to test which digit it carries.

    Args:
        model: The model.
        component: Name of a component.
        n: Number of pairs.
        task: The task of the inputs. Defaults to the model's task.
        seed: Seed of the pairs.

    Returns:
        The share of each explanation for each answer token.

    Raises:
        GlassformerError: The component does not exist, or the model is not causal.

    Example:
        >>> import glassformer as gf
        >>> moved = gf.interchange("addition:digits=3", "head 0.0", n=20).moved
        >>> moved[0].shares
        {'stays': 0.0, 'source': 1.0}
    """
    from .lens.interventions.patch import interchange as interchange_

    resolved = as_model(model)
    return interchange_(resolved, as_task(task, resolved), component, n, seed)


@public_api
def ground_truth(
    model: ModelLike,
    task: TaskLike | None = None,
    *,
    seed: int = 0,
    out: str | PathLike[str] | None = None,
) -> GroundTruth:
    """Return the known circuit of a program: its components, their roles and their edges.

    Args:
        model: The model.
        task: The task that provides inputs. Defaults to the model's task.
        seed: Seed of the inputs.
        out: FILE.json to write the ground truth.

    Returns:
        The slots, heads, neurons and edges.

    Raises:
        GlassformerError: The task does not fit the model, or the model has too many heads.

    Example:
        >>> import glassformer as gf
        >>> gf.ground_truth("reverse").heads[0]["name"]
        'reads the mirrored position'
    """
    from .circuits.edges import measure_ground_truth as truth_

    path = as_output(out, ".json", model, task)
    resolved = as_model(model)
    truth = truth_(resolved, as_task_if_known(task, resolved), seed=seed)
    if path:
        truth.save(path)
    return truth


@public_api
def obfuscate(
    model: ModelLike,
    seed: int = 0,
    *,
    rotate: bool = True,
    shuffle: bool = True,
    noise: float = 0.0,
    task: TaskLike | None = None,
    out: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
) -> ObfuscatedModel:
    """Return an unnamed copy of a model with the same function in another basis, and its key.

    Args:
        model: The model.
        seed: Seed of the basis, the order and the noise.
        rotate: Rotate the residual stream to a random orthogonal basis.
        shuffle: Permute heads and neurons.
        noise: Noise added to every weight, relative to the RMS of its array.
        task: The task to check the copy on. Defaults to the model's task.
        out: FILE.safetensors to write the copy.
        key: FILE.json to write the key. Required with `out`.

    Returns:
        The copy and its key.

    Raises:
        GlassformerError: `noise` or the size of the model is out of range, or rounding changes an
            answer.

    Example:
        >>> import glassformer as gf
        >>> copy, key = gf.obfuscate("reverse")
        >>> key.faithful
        True
    """
    from .circuits.obfuscation import obfuscate as obfuscate_

    if (out is None) != (key is None):
        raise GlassformerError("obfuscate — out and key: expected both or neither")
    copy = as_output(out, ".safetensors", model)
    key_path = as_output(key, ".json", model, name="key")
    resolved = as_model(model)
    goal = as_task_if_known(task, resolved)
    obfuscated = obfuscate_(resolved, seed, rotate=rotate, shuffle=shuffle, noise=noise, task=goal)
    if copy and key_path:
        obfuscated.save(copy, key_path)
    return obfuscated


# ── pages ──────────────────────────────────────────────────────────────────────────────────────
@public_api
def report(
    models: ModelLike | Sequence[ModelLike],
    out: str | PathLike[str] | None = None,
    inputs: str | Sequence[str] = (),
    rows: int = 2_000,
    *,
    task: TaskLike | None = None,
    full: bool = False,
    history: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    snapshots: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    progress: ProgressCallback | None = None,
) -> Report:
    """Make one HTML page that runs models, without a server or a network.

    Args:
        models: One model, or several to show side by side.
        out: FILE.html to write. Without it, a notebook shows the page and `save` writes it.
        inputs: Initial input strings.
        rows: Maximum number of examples per model on the page.
        task: The task. Defaults to each model's task.
        full: Verify every input of a large domain instead of a sample.
        history: The history file of each model's training.
        snapshots: The folder of snapshots of each model's training.
        progress: Called with each stage.

    Returns:
        The page.

    Raises:
        GlassformerError: There are too many models, or a model does not fit the task.

    Example:
        >>> import glassformer as gf
        >>> gf.report("addition:digits=1", "page.html", rows=20).path.name
        'page.html'
    """
    from .report_page import report as pages

    path = pages.check_output_path(out)
    several = [*models] if isinstance(models, (list, tuple)) else [models]
    resolved = [as_model(m) for m in several]
    titles = [
        str(m) if isinstance(m, (str, PathLike)) else model.name
        for m, model in zip(several, resolved, strict=True)
    ]
    return pages.report(
        [*zip(titles, resolved, strict=True)], inputs, out=path, rows=rows,
        task=None if task is None else as_task(task, *resolved[:1]), full=full, history=history,
        snapshots=snapshots, progress=progress,
    )  # fmt: skip


@public_api
def studio(
    models: ModelLike | Sequence[ModelLike],
    *,
    folders: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    inputs: str | Sequence[str] = (),
    port: int | None = None,
    minutes: float = 30.0,
    memory: float = 4.0,
    browser: bool = False,
) -> ServerHandle:
    """Open the live page with a server behind it: write sources, verify, prove and train there.

    The server listens on 127.0.0.1 only and answers only requests with its token. Nothing sent to
    it is executed.

    Args:
        models: One model, or several to show side by side.
        folders: Folders whose models and sources the page may open.
        inputs: Initial input strings.
        port: The port. 0 selects any free port. Defaults to 8757, or any free port if 8757 is
            taken.
        minutes: Time limit of a verification, a proof or a training.
        memory: Memory limit of each job, in GiB.
        browser: Open the page in a browser.

    Returns:
        The running server, with its address. `close` stops it.

    Raises:
        GlassformerError: An argument is out of range, or the port is taken.

    Example:
        >>> import glassformer as gf
        >>> with gf.studio("addition:digits=1", port=0) as server:
        ...     server.address.startswith("http://127.0.0.1:")
        True
    """
    import webbrowser

    server, folder = create_server(models, folders, inputs, port, minutes, memory)
    if browser:
        webbrowser.open(server.one_time_address)
    from .server.handle import ServerHandle

    return ServerHandle(server, folder)


def create_server(
    models: ModelLike | Sequence[ModelLike],
    folders: str | PathLike[str] | Sequence[str | PathLike[str]], inputs: str | Sequence[str],
    port: int | None, minutes: float, memory: float,
) -> tuple[StudioServer, Any]:  # fmt: skip
    """Return a server that is ready to run, and its temporary folder of models."""
    from .server import handle

    several = [*models] if isinstance(models, (list, tuple)) else [models]
    refs = [m if isinstance(m, (str, PathLike)) else as_model(m).numpy() for m in several]
    return handle.create_server(refs, folders, inputs, port, minutes, memory)


# ── training ───────────────────────────────────────────────────────────────────────────────────
@public_api
def fit(
    task: TaskLike, recipe: RecipeLike = "", seed: int = 0, *,
    parametrization: Parametrization | str | None = None, init_from: ModelLike | None = None,
    teacher: ModelLike | None = None, device: str = "cpu", threads: int = 1,
    out: str | PathLike[str] | None = None, resume: bool = False, compile: bool = False,
    history: str | PathLike[str] | None = None, snapshots: str | PathLike[str] | None = None,
    stop: Callable[[], bool] | None = None, progress: ProgressCallback | None = None,
    **fields: Unpack[RecipeFields],
) -> Training:  # fmt: skip
    """Train one model. Needs PyTorch.

    Args:
        task: The task to learn.
        recipe: A Recipe, its name, or a file. Defaults to the recipe chosen for the task.
        seed: Seed of the weights and the data.
        parametrization: A parametrization or its ref.
        init_from: The model that provides the initial weights and the shape.
        teacher: A model to imitate. Its answers replace the task's as training targets.
        device: PyTorch device.
        threads: Number of threads.
        out: FILE.safetensors to write. The state of the run is saved beside it, to resume from.
        resume: Continue the interrupted run of `out`.
        compile: Compile the step with torch.compile.
        history: FILE.jsonl or FILE.csv for evaluations and milestones.
        snapshots: A folder for the model at every evaluation.
        stop: Called after every step; True ends the run after saving.
        progress: Called with the number of training steps done so far.
        **fields: Any field of the recipe, such as `steps=500` or `lr=0.01`.

    Returns:
        The trained model, and the history of its training.

    Raises:
        GlassformerError: The options conflict, or another run writes to `out`.

    Example:
        >>> import glassformer as gf
        >>> trained = gf.fit("addition:digits=1", "fast", steps=2, evaluate_every=1)
        >>> trained.steps
        2
    """
    goal, options = _training_options(
        task, recipe, fields, seeds=[seed], parametrization=parametrization, init_from=init_from,
        teacher=teacher,
        out=out, resume=resume, history=history, snapshots=snapshots, stop=stop,
    )  # fmt: skip
    from .training import api

    return api.fit(
        goal, seed=seed, device=device, threads=threads, compile=compile, progress=progress,
        **options,
    )  # fmt: skip


@public_api
def train(
    task: TaskLike, recipe: RecipeLike = "", seeds: Sequence[int] = (0,), *,
    parametrization: Parametrization | str | None = None, init_from: ModelLike | None = None,
    teacher: ModelLike | None = None, device: str = "cpu", threads: int = 1,
    out: str | PathLike[str] | None = None, resume: bool = False, compile: bool = False,
    history: str | PathLike[str] | None = None, snapshots: str | PathLike[str] | None = None,
    stop: Callable[[], bool] | None = None, **fields: Unpack[RecipeFields],
) -> TrainingRun:  # fmt: skip
    """Train one model per seed and return an iterator of events. Needs PyTorch.

    Training starts at the first `next()`. The last event of each seed is "done", with its Training.

    Args:
        task: The task to learn.
        recipe: A Recipe, its name, or a file. Defaults to the recipe chosen for the task.
        seeds: Seeds of the weights and the data, one for each model.
        parametrization: A parametrization or its ref.
        init_from: The model that provides the initial weights and the shape.
        teacher: A model to imitate. Its answers replace the task's as training targets.
        device: PyTorch device.
        threads: Number of threads.
        out: FILE.safetensors to write; with several seeds one file each, FILE-seed3.safetensors.
        resume: Continue the interrupted run of `out`.
        compile: Compile the step with torch.compile.
        history: FILE.jsonl or FILE.csv for evaluations and milestones.
        snapshots: A folder for the model at every evaluation.
        stop: Called after every step; True ends the run after saving.
        **fields: Any field of the recipe, such as `steps=500` or `lr=0.01`.

    Returns:
        The run, an iterator of events.

    Raises:
        GlassformerError: The options conflict, or another run writes to `out`.

    Example:
        >>> import glassformer as gf
        >>> run = gf.train("addition:digits=1", "fast", steps=2, evaluate_every=1)
        >>> [event.kind for event in run][-1]
        'done'
    """
    goal, options = _training_options(
        task, recipe, fields, seeds=seeds, parametrization=parametrization, init_from=init_from,
        teacher=teacher,
        out=out, resume=resume, history=history, snapshots=snapshots, stop=stop,
    )  # fmt: skip
    from .training import api

    return api.train(goal, seeds=seeds, device=device, threads=threads, compile=compile, **options)


@public_api
def ablation_study(
    task: TaskLike,
    recipe: RecipeLike = "",
    *,
    seeds: Sequence[int] = (0, 1, 2),
    only: str | Sequence[str] = (),
    out: str | PathLike[str] | None = None,
    threads: int = 1,
    progress: ProgressCallback | None = None,
    **fields: Unpack[RecipeFields],
) -> AblationStudy:
    """Train a recipe with one part removed at a time. Needs PyTorch.

    To ablate a component of a trained model, see `ablate`.

    Args:
        task: The task to learn.
        recipe: A Recipe, its name, or a file. Defaults to the recipe chosen for the task.
        seeds: Seeds of the runs of each ablation.
        only: Names of ablations to run besides the baseline.
        out: Folder with one file for each result. Saved results are not computed again.
        threads: Number of threads.
        progress: Called with the number of training steps done so far and the current ablation.
        **fields: Any field of the recipe.

    Returns:
        The results of the baseline and of each ablation.

    Raises:
        GlassformerError: An ablation is unknown, or `out` contains another study.

    Example:
        >>> import glassformer as gf
        >>> study = gf.ablation_study(
        ...     "addition:digits=1", "fast", seeds=[0], only="no-mlp", steps=1
        ... )
        >>> [result.case.name for result in study.results]
        ['baseline', 'no-mlp']
    """
    path = None if out is None else as_folder(out)
    goal, options = _training_options(task, recipe, fields)
    from .training.studies.ablation_study import run_ablation_study as ablations_

    return ablations_(
        goal,
        options["recipe"],
        seeds=seeds,
        only=only,
        out=path,
        threads=threads,
        progress=progress,
    )


def _training_options(
    task: TaskLike, recipe: RecipeLike, fields: Mapping[str, Any], *, seeds: Sequence[int] = (),
    parametrization: Any = None, init_from: Any = None, teacher: Any = None, out: Any = None,
    resume: bool = False, history: Any = None, snapshots: Any = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[Task, dict[str, Any]]:  # fmt: skip
    """Check the arguments of a training before importing PyTorch; return its task and options."""
    goal = as_task(task)
    options: dict[str, Any] = {
        "parametrization": as_parametrization(parametrization),
        "resume": resume,
    }
    for name, model in (("init_from", init_from), ("teacher", teacher)):
        options[name] = None if model is None else as_model(model).numpy()
    initial = options["init_from"] or getattr(options["parametrization"], "base", None)
    options["recipe"] = as_recipe(recipe, goal).override(fields, initial)
    for name, path in (("out", out), ("history", history)):
        options[name] = None if path is None else as_path(path, name)
    options["snapshots"] = None if snapshots is None else as_folder(snapshots, "snapshots")
    if stop is not None:
        options["stop"] = stop
    inputs = input_paths([task, recipe, parametrization, init_from, teacher])
    if out is not None or history is not None:
        from .training.run_file import check_outputs

        check_outputs(options["out"], seeds, resume, options["history"], inputs)
    return goal, options


@public_api
def sweep(
    spec: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    cluster: str = "",
    workers: int | None = None,
    limit: int = 1_000,
    task: str = "",
    progress: ProgressCallback | None = None,
) -> SweepResult:
    """Train a grid of settings from a TOML file. A repeated call skips finished runs.

    Args:
        spec: The TOML file (docs/sweeps.md).
        out: Folder for the results. Defaults to SPEC-sweep in the folder of the spec.
        cluster: Address of a Dask cluster to run on.
        workers: Number of processes. (A script then needs `if __name__ == "__main__"`.)
        limit: Maximum number of runs. A larger grid raises an error.
        task: The ref FILE.py:NAME of a task in the spec. The file is executed only if passed here.
        progress: Called after each run.

    Returns:
        The table of all runs.

    Raises:
        GlassformerError: The TOML file has an error, or the grid is too large.

    Example:
        >>> import glassformer as gf
        >>> from pathlib import Path
        >>> spec = '''task = "addition:digits=1"
        ... recipe = "fast"
        ... set = {steps = 1}
        ... grid = {lr = [0.001, 0.01]}'''
        >>> _ = Path("rates.toml").write_text(spec)
        >>> gf.sweep("rates.toml", workers=1).runs
        2
    """
    from functools import partial

    from . import user_modules
    from .training.studies.sweep import run_sweep as sweep_

    load = partial(user_modules.load_task_with_file, task) if task else resolve.load_task
    return sweep_(
        as_path(spec, "sweep"),
        None if out is None else as_folder(out),
        load,
        cluster=cluster,
        workers=workers,
        limit=limit,
        progress=progress,
    )


# ── registration, and the tour ────────────────────────────────────────────────────────────
@public_api
def task(name: str) -> Callable[[type[C]], type[C]]:
    """Register a class of tasks under a name: `@gf.task("vote")`.

    Returns:
        A decorator that returns the class.

    Raises:
        GlassformerError: The name is invalid or taken, or the decorated object is not a class.

    Example:
        >>> import glassformer as gf
        >>> from glassformer.tasks.token_layout import mark_answer
        >>> @gf.task("double")
        ... class Double(gf.Task):
        ...     vocabulary, radix = gf.Vocabulary("0123456789"), (5,)
        ...     def batch(self, rows):
        ...         return mark_answer(rows * [1, 2])
        >>> gf.check_task("double").holds
        True
    """
    from . import registry

    return registry.task(name)


@public_api
def program(
    name: str, float32: bool | Callable[[dict[str, Any]], str] = False
) -> Callable[[Program], Program]:
    """Register a function that returns a Model under a name: `@gf.program("vote")`.

    Args:
        name: Name of the program.
        float32: Whether the program supports dtype=float32; or a function that takes the options
            and returns "" or the reason why float32 is not supported.

    Returns:
        A decorator that returns the function, which checks its options.

    Raises:
        GlassformerError: The name is invalid or taken, or the decorated object is not a function.

    Example:
        >>> import glassformer as gf
        >>> @gf.program("smallest")
        ... def smallest(vocab: int = 20) -> gf.Model:
        ...     return gf.load(f"min:vocab={vocab}")
        >>> gf.run("smallest:vocab=10", "6 2 7").output
        '2'
    """
    from . import registry

    return registry.program(name, float32)  # type: ignore[return-value]


@public_api
def parametrization(name: str) -> Callable[[type[C]], type[C]]:
    """Register a class of parametrizations under a name: `@gf.parametrization("low-rank")`.

    Returns:
        A decorator that returns the class.

    Raises:
        GlassformerError: The name is invalid or taken, or the decorated object is not a class.

    Example:
        >>> import glassformer as gf
        >>> from glassformer.parametrizations import Parametrization
        >>> @gf.parametrization("no-biases")
        ... class NoBiases(Parametrization):
        ...     def expand(self, theta, shapes):
        ...         weights = super().expand(theta, shapes)
        ...         return {name: 0 * w if ".b_" in name else w for name, w in weights.items()}
        >>> trained = gf.fit("addition:digits=1", "fast", steps=2, parametrization="no-biases")
        >>> trained.model.weights["blocks.0.mlp.b_in"].any().item()
        False
    """
    from . import registry

    return registry.parametrization(name)


@public_api
def tour(
    page: str | PathLike[str] = "glassformer-tour.html", *, console: Console | None = None
) -> TourResult:
    """Show the whole package in a minute: make, run, verify, explain, train, prove, compare.

    Args:
        page: FILE.html for the report at the end.
        console: The Rich console to print to.

    Returns:
        The number of failures and the path of the report.

    Raises:
        GlassformerError: The report cannot be written.

    Example:
        >>> import glassformer as gf
        >>> from rich.console import Console
        >>> gf.tour("tour.html", console=Console(quiet=True)).wrong
        0
    """
    from rich.console import Console

    from . import guided_tour

    if not isinstance(console, Console | None):
        raise GlassformerError(
            f"tour — console: expected a Console of Rich, got {short_repr(console)}"
        )
    return guided_tour.tour(as_path(page, "page"), console=console)

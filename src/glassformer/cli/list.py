"""The command list: names and options of programs, tasks, recipes and other registered objects."""

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from rich.padding import Padding
from typer import Argument

from .. import api, published_claims, registry, resolve
from ..compiler import library, source_refs
from ..training.recipe import RECIPE_FIELDS
from ..training.recipes import RECIPE_SUMMARIES, RECIPES, find_recipe
from .common import app, join_words, make_table, out, print_json, print_text
from .options import Json

if TYPE_CHECKING:
    from .. import puzzles

REGISTERED_KINDS = ("programs", "tasks", "parametrizations")
KINDS = (
    "programs", "tasks", "recipes", "fields", "parametrizations", "lang", "claims", "levels",
    "trained", "bridges", "views", "hooks",
)  # fmt: skip
DEFAULT_RECIPE = {
    "auto": "The default without a named recipe: chosen by the task's size, tokens and lengths "
    "(docs/trained.md)."
}


@app.command("list")
def list_(
    kind: Annotated[str, Argument(help=join_words(KINDS))] = "programs",
    ref: Annotated[str, Argument(
        help="for hooks: the model; for recipes, lang and levels: show only this one")] = "",
    as_json: Json = False,
) -> None:  # fmt: skip
    """List programs, tasks and parametrizations with their options, recipes and their fields (for
    --set), sources of the language, claims, puzzle levels, trained models, bridges, views or hooks.

    The name of a source (lang/sort, x.glass) shows its text and options; levels NAME shows a level.
    """
    prefix = registry.LIBRARY_PREFIX
    if kind in REGISTERED_KINDS:
        entries = [entry for _, entry in sorted(registry.entries(kind[:-1]).items())]
        print_json({kind: [e.to_json() for e in entries]}) if as_json else _show_options(entries)
    elif kind == "recipes":
        _list_recipes(ref, as_json)
    elif kind == "fields" and not ref:
        fields = {name: f.metadata["help"] for name, f in RECIPE_FIELDS.items()}
        if as_json:
            return print_json({kind: [{"name": n, "help": text} for n, text in fields.items()]})
        _show_sentences({f"{n}={RECIPE_FIELDS[n].default}": text for n, text in fields.items()})
    elif kind == "claims":
        ledger = published_claims.ledger().values()
        if as_json:
            return print_json({kind: [c.to_json() for c in ledger]})
        rows = [(c.name, c.where, c.says, c.verdict) for c in ledger]
        out.print(make_table(("claim", "source", "published", "verdict"), rows))
    elif registry.is_source_ref(kind) or (kind == "lang" and ref):
        name = prefix + ref.removeprefix(prefix) if kind == "lang" else kind
        _show_source(source_refs.resolve_source(name), as_json)
    elif kind == "lang":
        names = source_refs.library_refs()
        sources = {name: library.describe(name.removeprefix(prefix)) for name in names}
        if as_json:
            return print_json({kind: [{"name": n, "help": text} for n, text in sources.items()]})
        _show_sentences(sources)
    elif kind == "levels":
        _list_levels(ref, as_json)
    else:
        names = api.list_(kind, ref)
        if as_json:
            print_json({kind: names})
        elif kind == "trained":
            _show_sentences({name: resolve.TRAINED_DESCRIPTIONS.get(name, "") for name in names})
        else:
            out.print("\n".join(names))


def _show_sentences(descriptions: Mapping[str, str]) -> None:
    for name, text in descriptions.items():
        out.print(name, style="bold", end="  ")
        out.print(text)


def _show_options(entries: Iterable[registry.Entry]) -> None:
    for e in entries:
        out.print(e.name, style="bold", end="  ")
        out.print(e.help)
        defaults = [f"{o.name}={o.default}" for o in e.options.values()]
        width = max(map(len, defaults), default=0)
        for default, o in zip(defaults, e.options.values(), strict=True):
            out.print(f"    {default:<{width}}  {o.expected}", style="dim")


def _show_source(source: source_refs.SourceRef, as_json: bool) -> None:
    options = source_refs.source_options(source)
    if as_json:
        return print_json({"name": source.name, "options": options, "source": source.text})
    print_text(source.text.removeprefix("\ufeff").rstrip("\n"))
    if options:
        print_text("")
    for name, o in options.items():
        limits = f"  from {o['least']} to {o['most']}" if "least" in o else ""
        out.print(f"{source.name}:{name}={o['default']}{limits}", style="dim")


def _list_recipes(name: str, as_json: bool) -> None:
    """Print recipes and the fields that they change; JSON has all fields, for --recipe FILE."""
    recipes = [find_recipe(name)] if name else list(RECIPES.values())
    if as_json:
        rows = [r.to_json() for r in recipes]
        return print_json(rows[0] if name else {"recipes": rows})
    for r in recipes:
        _show_sentences({r.name: RECIPE_SUMMARIES.get(r.name, "")})
        fields = r.non_default_fields().items()
        settings = " ".join(shlex.quote(f"{n}={v}") for n, v in fields if n != "name")
        out.print(Padding(settings, (0, 0, 0, 4)), style="dim")
    if not name:
        _show_sentences(DEFAULT_RECIPE)


def _list_levels(name: str, as_json: bool) -> None:
    """Print all levels in order, or one level in full."""
    from .. import puzzles  # imported here because the import is slow

    levels = [puzzles.level(name)] if name else list(puzzles.levels().values())
    if as_json:
        rows = [level.to_json() for level in levels]
        return print_json(rows[0] if name else {"levels": rows})
    for level in levels:
        out.print(f"{level.number:>2}  {level.id}", style="bold", end="  ")
        out.print(f"{level.title}: {level.goal} (.{level.kind})")
    if name:
        _show_level(levels[0])


def _show_level(level: "puzzles.Level") -> None:
    def axes(score: Mapping[str, int]) -> str:
        return ", ".join(f"{n:,} {AXES[axis]}" for axis, n in score.items())

    from ..puzzles.level import AXES

    for text, answer in level.examples.items():
        print_text(f"    {text} → {answer}")
    if level.limits:
        print_text(f"At most: {axes(level.limits)}")
    print_text(f"Best known, on each axis: {axes(level.best)}")
    print_text(f"Judged by {level.judged_by}: {level.command}\n\n{level.file}, to start from:\n")
    print_text(level.stub)
    for i, hint in enumerate(level.hints, 1):
        print_text(f"Hint {i}: {hint}")
    if level.read:
        print_text(f"More: docs/{level.read}")

"""The command list: what there is."""

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from rich.padding import Padding
from typer import Argument

from .. import api, published_claims, registry, resolve
from ..compiler import library, source_refs
from ..training.recipe import RECIPE_FIELDS
from ..training.recipes import RECIPE_SUMMARIES, RECIPES, find_recipe
from .common import Json, app, join_words, make_table, out, print_json, print_text

if TYPE_CHECKING:
    from .. import puzzles

REGISTERED_KINDS = ("programs", "tasks", "parametrizations")
NAME_KINDS = ("trained", "bridges", "views", "hooks")
KINDS = (
    "programs",
    "tasks",
    "recipes",
    "fields",
    "parametrizations",
    "lang",
    "claims",
    "levels",
    *NAME_KINDS,
)
KINDS_HELP = join_words(KINDS)
DEFAULT_RECIPE = {
    "auto": "What a task gets if no recipe is named: chosen by its size, its tokens and its "
    "lengths (docs/trained.md)."
}


@app.command("list")
def list_(
    what: Annotated[str, Argument(help=KINDS_HELP)] = "programs",
    ref: Annotated[
        str, Argument(help="for hooks: the model; for recipes, lang and levels: just this one")
    ] = "",
    as_json: Json = False,
) -> None:
    """What there is: programs, tasks and parametrizations with options, recipes and their fields,
    which --set sets, sources of the language, claims, levels (puzzles to solve); names of trained
    models, bridges, views and hooks. A source (lang/sort, x.glass) is shown with its options, a
    level with its stub and hints.
    """
    if what in REGISTERED_KINDS:
        entries = [entry for _, entry in sorted(registry.entries(what[:-1]).items())]
        print_json({what: [e.to_json() for e in entries]}) if as_json else _show_options(entries)
    elif what == "recipes":
        _list_recipes(ref, as_json)
    elif what == "fields" and not ref:
        told = {f"{n}={f.default}": f.metadata["help"] for n, f in RECIPE_FIELDS.items()}
        if as_json:
            every = RECIPE_FIELDS.items()
            return print_json({what: [{"name": n, "help": f.metadata["help"]} for n, f in every]})
        _show_sentences(told)
    elif what == "claims":
        ledger = published_claims.ledger().values()
        columns = ("claim", "where", "says", "verdict")
        if as_json:
            return print_json({what: [c.to_json() for c in ledger]})
        out.print(make_table(columns, [(c.name, c.where, c.says, c.verdict) for c in ledger]))
    elif source_refs.is_source_ref(what) or (what == "lang" and ref):
        name = (
            what
            if what != "lang"
            else source_refs.LIBRARY_PREFIX + ref.removeprefix(source_refs.LIBRARY_PREFIX)
        )
        _show_source(source_refs.resolve_source(name), as_json)
    elif what == "lang":
        told = {
            name: library.describe(name.removeprefix(source_refs.LIBRARY_PREFIX))
            for name in source_refs.library_refs()
        }
        if as_json:
            return print_json({what: [{"name": n, "help": text} for n, text in told.items()]})
        _show_sentences(told)
    elif what == "levels":
        _list_levels(ref, as_json)
    else:
        names = api.list_(what, ref)
        if what == "trained" and not as_json:
            return _show_sentences(
                {name: resolve.TRAINED_DESCRIPTIONS.get(name, "") for name in names}
            )
        print_json({what: names}) if as_json else out.print("\n".join(names))


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
    """What a source says, and what may be told to it."""
    options = source_refs.source_options(source)
    if as_json:
        return print_json({"name": source.name, "options": options, "source": source.text})
    print_text(source.text.removeprefix("\ufeff").rstrip("\n"))
    if options:
        print_text("")
    for name, given in options.items():
        ends = f"  from {given['least']} to {given['most']}" if "least" in given else ""
        out.print(f"{source.name}:{name}={given['default']}{ends}", style="dim")


def _list_recipes(name: str, as_json: bool) -> None:
    """Each recipe with the fields that it changes; as JSON all: what --recipe FILE.json reads."""
    found = [find_recipe(name)] if name else list(RECIPES.values())
    if as_json:
        rows = [r.to_json() for r in found]
        return print_json(rows[0] if name else {"recipes": rows})
    for r in found:
        _show_sentences({r.name: RECIPE_SUMMARIES.get(r.name, "")})
        changed = [
            shlex.quote(f"{n}={v}") for n, v in r.non_default_fields().items() if n != "name"
        ]
        out.print(Padding(" ".join(changed), (0, 0, 0, 4)), style="dim")
    if not name:
        _show_sentences(DEFAULT_RECIPE)


def _list_levels(name: str, as_json: bool) -> None:
    """All levels in their order; or all that is said about one."""
    from .. import puzzles  # with all that a judge needs

    found = [puzzles.level(name)] if name else list(puzzles.levels().values())
    if as_json:
        rows = [level.to_json() for level in found]
        return print_json(rows[0] if name else {"levels": rows})
    for level in found:
        out.print(f"{level.number:>2}  {level.id}", style="bold", end="  ")
        out.print(f"{level.title}: {level.goal} (.{level.kind})")
    if name:
        _show_level(found[0])


def _show_level(level: "puzzles.Level") -> None:
    def axes(score: Mapping[str, int]) -> str:
        return ", ".join(f"{n:,} {AXES[axis]}" for axis, n in score.items())

    from ..puzzles.level import AXES

    for text, answer in level.examples.items():
        print_text(f"    {text} → {answer}")
    if level.limits:
        print_text(f"At most: {axes(level.limits)}")
    print_text(f"Best known, on each axis: {axes(level.best)}")
    print_text(f"Judged by {level.judged_by}: {level.command}\n\n{level.file}, to begin from:\n")
    print_text(level.stub)
    for i, hint in enumerate(level.hints, 1):
        print_text(f"Hint {i}: {hint}")
    if level.read:
        print_text(f"More: docs/{level.read}")

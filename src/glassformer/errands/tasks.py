"""A task tried out before anybody trains on it, or named (`gf.task`, the command task)."""

from typing import Any

from .. import registry
from ..errors import no_such
from ..face import task_of
from ..model import Model
from ..tasks.base import Task
from ..tasks.examine import examine


def task(name: Any) -> Any:
    """Tries a task out (mine.py:Vote, addition:digits=3, a Task or its class): an Examination.

    With a new name it is the decorator that gives a class of yours that name: @gf.task("vote").
    """
    if isinstance(name, type) and issubclass(name, Task):
        name = name()
    if isinstance(name, (Task, Model)) or _is_there(name):
        return examine(task_of(*((None, [name]) if isinstance(name, Model) else (name, []))))
    return Naming(name)


class Naming:
    """The decorator @gf.task("vote"). Whoever meant to try a task out is told that it is one."""

    def __init__(self, name: Any) -> None:
        self._name, self._give = name, registry.task(name)

    def __call__(self, cls: Any) -> Any:
        return self._give(cls)

    def __repr__(self) -> str:
        name, known = self._name, registry.entries("task")
        if name in known:
            return f"{name} — is a task of yours; to try it out: gf.task(gf.load_task({name!r}))"
        above = f"as a new name it stands above a class of yours: @gf.task({name!r})"
        return f"{no_such('task', name, known)}; {above}"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name if name.startswith("_") else repr(self))


def _is_there(name: Any) -> bool:
    """Whether a text is the ref of a task and not a new name: nobody can give the package's."""
    if not isinstance(name, str) or not name:
        return False
    return not registry.is_name(name) or name in registry.built_in("task")

"""Branches: which of the things that a handler does side by side is asking for a step.

A handler may start tasks (`asyncio.gather`, a task group, `create_task`), and each of them may ask for steps of the
same name. Which one asks first depends on how long each waits, and a repetition waits differently: what was done is
recalled at once. So the order of asking cannot tell steps apart. The order in which the tasks were *created* can,
because the same code creates them in the same order. A task cannot know how many were created before it, but its
creator can: hence a task factory.

A branch is known by the branch that created it, by the name of its coroutine, and by how many branches of that name
were created there before. The name keeps tasks that others start in a handler now and then (a connection pool that
opens a line, an engine that drives a run inside) from shifting the numbers of the rest. What a step does inside is a
branch too: when the step is recalled, what it did inside is not asked for, and must not be missed in the count.

Threads that were given a copy of the context (`asyncio.to_thread`) belong to the branch that waits for them.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

_CURRENT: ContextVar[Branch | None] = ContextVar("stepwell_branch", default=None)
_by_task: WeakKeyDictionary[asyncio.Task[Any], Branch] = WeakKeyDictionary()
"""Tasks that were created with a context of the caller's choice, which is not ours to change."""


class Unplaced(RuntimeError):
    """Nobody can say which branch of a handler is asking."""


class Branch:
    """One of the things that a handler does side by side; the handler itself is the first."""

    __slots__ = ("_asked", "_blocked", "_created", "_id", "_label", "outer", "parent", "task")

    def __init__(self, label: str = "", parent: Branch | None = None) -> None:
        self.parent = parent
        self.outer: Branch | None = _here() if parent is None else parent.outer  # that of the handler around this run
        self._label = label
        self._id: str | None = "" if parent is None else None
        self.task: int | None = None  # the id of the task that runs it; not the task, which knows us by its context
        self._created: dict[str, Iterator[int]] | None = None  # made when needed: most handlers have no branches
        self._asked: dict[str, Iterator[int]] | None = None
        self._blocked: int | None = None  # the thread that waits for a step

    @property
    def id(self) -> str:
        """Empty for the handler itself; else the same in every repetition of the handler, and in no other branch."""
        unnamed = [branch for branch in self.ancestors() if branch._id is None]
        for branch in reversed(unnamed):  # a loop: tasks may create tasks to any depth
            assert branch.parent is not None
            branch._id = blake2b(f"{branch.parent._id}/{branch._label}".encode(), digest_size=8).hexdigest()
        assert self._id is not None
        return self._id

    def count(self, name: str) -> int:
        """How often this name was asked for before, here."""
        if self._asked is None:
            self._asked = {}
        return next(self._asked.setdefault(name, itertools.count()))

    def child(self, name: str) -> Branch:
        """The next branch of this name."""
        if self._created is None:
            self._created = {}
        number = next(self._created.setdefault(name, itertools.count()))
        return Branch(f"{name}:{number}", self)

    def inside(self, step: str) -> Branch:
        """What a step does inside; counted from the beginning at each attempt."""
        return Branch(step, self)

    def ancestors(self) -> Iterator[Branch]:
        """This branch, the one that created it, and so on up to the handler itself."""
        branch: Branch | None = self
        while branch is not None:
            yield branch
            branch = branch.parent

    def is_run_by_another(self) -> bool:
        """True inside a task that was created past our task factory: it was given the branch of its creator."""
        task = _current_task()
        return task is not None and self.task is not None and self.task != id(task)

    @contextmanager
    def block(self) -> Iterator[None]:
        """While a thread waits for a step. Raises Unplaced if another one does: which is which, nobody knows."""
        me = threading.get_ident()
        if self._blocked not in (None, me):
            raise Unplaced("two threads of one branch ask for steps at the same time")
        self._blocked = me
        try:
            yield
        finally:
            self._blocked = None


def find_current(handler: Branch) -> Branch | None:
    """The branch of a handler call that is asking; None if there is no telling."""
    branch = _here()
    while branch is not None and handler not in branch.ancestors():
        branch = branch.outer
    return branch


class Entered:
    """What is called inside `with Entered(branch):`, and tasks and threads that it starts, belong to the branch."""

    __slots__ = ("_branch", "_token")

    def __init__(self, branch: Branch) -> None:
        self._branch = branch

    def __enter__(self) -> None:
        self._branch.task = id(asyncio.current_task())
        self._token = _CURRENT.set(self._branch)

    def __exit__(self, *error: object) -> None:
        self._branch.task = 0  # over: tasks that share a context could be left with it
        _CURRENT.reset(self._token)


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Let tasks that handlers create on this loop be branches. Tasks created elsewhere are left as they are."""
    factory = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        loop.set_task_factory(_TaskFactory(factory))


class _TaskFactory:
    """Creates tasks as the loop did before, and gives those that a handler starts a branch of their own."""

    was_given_contexts = False  # ever, in this process: hardly anybody does that, and looking it up costs time

    def __init__(self, inner: Callable[..., Any] | None) -> None:
        self._inner = inner

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        parent = _here()
        if parent is None:
            return self._create(loop, coroutine, **options)
        branch = parent.child(getattr(coroutine, "__qualname__", type(coroutine).__qualname__))
        if options.get("context") is None:
            options.pop("context", None)
            context = copy_context()
            context.run(_CURRENT.set, branch)  # before it is created: an eager task starts at once
            task = context.run(partial(self._create, loop, coroutine, **options))
        else:
            with suppress(RuntimeError):  # it is being run; then only the task itself is known, and not its threads
                options["context"].run(_CURRENT.set, branch)
            task = self._create(loop, coroutine, **options)
            _by_task[task] = branch
            _TaskFactory.was_given_contexts = True
        branch.task = id(task)
        return task

    def _create(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if self._inner is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return self._inner(loop, coroutine, **options)


def _here() -> Branch | None:
    branch = _CURRENT.get()
    if (
        _TaskFactory.was_given_contexts
        and (branch is None or branch.is_run_by_another())
        and (task := _current_task()) is not None
    ):
        return _by_task.get(task, branch)
    return branch


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        return None

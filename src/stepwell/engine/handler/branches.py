"""Branches: identifies which of a handler's concurrent tasks calls a step.

A handler may start tasks (`asyncio.gather`, a task group, `create_task`), and each of them may call steps of the
same name. Which one calls first depends on how long each waits, and a repetition waits differently: what was done is
recalled at once. So the order of calls cannot identify steps. The order in which the tasks were *created* can,
because the same code creates them in the same order. A task cannot know how many were created before it, but its
creator can: hence a task factory.

A branch is known by the branch that created it, by the name of its coroutine, and by how many branches of that name
were created there before. The name keeps tasks that others start in a handler now and then (a connection pool that
opens a connection, an engine that drives a sub-workflow run) from shifting the numbers of the rest. The inside of a
step is a branch too: when the step is recalled, nothing inside it is called, and nothing may be missing in the count.

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

import msgspec

from stepwell.model.log_keys import mark_in_step

_CURRENT: ContextVar[Branch | None] = ContextVar("stepwell_branch", default=None)
# Tasks that were created with a context of the caller's choice, which is not ours to change. Weak: it must not
# keep a task alive.
_by_task: WeakKeyDictionary[asyncio.Task[Any], Branch] = WeakKeyDictionary()


class UnidentifiedBranch(RuntimeError):
    """The branch of a handler that calls a step cannot be identified."""


class Branch(msgspec.Struct, eq=False):
    """One of the concurrent tasks of a handler; the handler itself is the first.

    A context manager: calls, tasks and threads started inside belong to the branch.
    """

    parent: Branch | None = None
    # The branch of a handler in the calling run, if this is a sub-workflow run.
    outer: Branch | None = None
    _label: str = ""
    _id: str | None = None
    # The id of the task that runs it, not the task: that refers to us through its context.
    task: int | None = None
    # Inside a step, so that nothing in it is called when the step is recalled.
    is_in_step: bool = False
    is_step: bool = False  # the first branch inside it
    # Of the handler itself, as long as it runs: its context. Any, because that refers to branches.
    context: Any = None
    # By name, how many branches were created here, and how often it was counted.
    _created: dict[str, Iterator[int]] = {}
    _counted: dict[str, Iterator[int]] = {}
    # The branches that the handler has created so far, if somebody asks.
    created: list[Branch] | None = None
    _blocked: int | None = None  # the thread that waits for a step
    _token: Any = None

    def __enter__(self) -> None:
        self.task = id(asyncio.current_task())
        self._token = _CURRENT.set(self)

    def __exit__(self, *error: object) -> None:
        # No task has this id: one that outlives the branch is not taken for it.
        self.task = 0
        _CURRENT.reset(self._token)

    @property
    def id(self) -> str:
        """Empty for the handler itself; else unique, and the same in every repetition of the handler."""
        if self._id is not None:
            return self._id
        unnamed = [branch for branch in self.ancestors() if branch._id is None]
        # Not recursive: tasks may create tasks to any depth.
        for branch in reversed(unnamed):
            assert branch.parent is not None
            digest = blake2b(f"{branch.parent._id}/{branch._label}".encode(), digest_size=8).hexdigest()
            branch._id = mark_in_step(digest) if branch.is_in_step else digest
        assert self._id is not None
        return self._id

    def count(self, name: str) -> int:
        """Return how often this name was counted in this branch before."""
        counter = self._counted.get(name)
        if counter is None:
            counter = self._counted[name] = itertools.count()
        return next(counter)

    def child(self, name: str) -> Branch:
        """Create the next branch of this name."""
        number = next(self._created.setdefault(name, itertools.count()))
        branch = Branch(self, self.outer, f"{name}:{number}", is_in_step=self.is_in_step, created=self.created)
        if self.created is not None:
            self.created.append(branch)
        return branch

    def inside(self, step: str) -> Branch:
        """Create the branch inside a step; it starts to count anew at each attempt."""
        return Branch(self, self.outer, step, is_in_step=True, is_step=True)

    def ancestors(self) -> Iterator[Branch]:
        """Yield this branch, the one that created it, and so on up to the handler itself."""
        branch: Branch | None = self
        while branch is not None:
            yield branch
            branch = branch.parent

    def is_run_by_another(self) -> bool:
        """Return True inside a task that did not come from our task factory: it has inherited its creator's branch."""
        task = _current_task()
        return task is not None and self.task is not None and self.task != id(task)

    @property
    def is_blocked(self) -> bool:
        """Whether a thread of the branch waits for a step."""
        return self._blocked is not None

    @contextmanager
    def block(self) -> Iterator[None]:
        """Block a thread in a step. Raises UnidentifiedBranch if another one is blocked: their order is not known."""
        me = threading.get_ident()
        if self._blocked not in (None, me):
            raise UnidentifiedBranch("two threads of one branch ask for steps at the same time")
        self._blocked = me
        try:
            yield
        finally:
            self._blocked = None


def handler_branch(context: Any) -> Branch:
    """Return the branch of a handler that is about to be called, with its context."""
    return Branch(outer=_current_branch(), _id="", context=context)


def find_context() -> Any:
    """Return the context of the handler that calls; None outside of handlers.

    Raises RuntimeError in a task or thread that outlives its handler.
    """
    branch = _current_branch()
    if branch is None:
        return None
    while branch.parent is not None:
        branch = branch.parent
    if branch.context is None:
        raise RuntimeError("the handler that started this has returned, failed or was given up; await what it starts")
    return branch.context


def find_current(handler: Branch) -> Branch | None:
    """Return the branch of a handler call that is running; None if it cannot be identified."""
    branch = _current_branch()
    # Most steps are called by the handler itself.
    if branch is handler:
        return branch
    while branch is not None and handler not in branch.ancestors():
        branch = branch.outer
    return branch


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Make tasks that handlers create on this loop branches. Other tasks are not affected."""
    factory = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        loop.set_task_factory(_TaskFactory(factory))


class _TaskFactory:
    """Creates tasks as the loop did before, and gives those started by a handler a branch each."""

    # For the whole process: hardly anybody passes a context, and the lookup costs time.
    was_given_contexts = False

    def __init__(self, inner: Callable[..., Any] | None) -> None:
        self._inner = inner

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        parent = _current_branch()
        if parent is None:
            return self._create(loop, coroutine, **options)
        branch = parent.child(getattr(coroutine, "__qualname__", type(coroutine).__qualname__))
        if options.get("context") is None:
            options.pop("context", None)
            context = copy_context()
            # Before the task is created: an eager one starts at once.
            context.run(_CURRENT.set, branch)
            task = context.run(partial(self._create, loop, coroutine, **options))
        else:
            # The context is in use: the task is known, but not the threads it starts.
            with suppress(RuntimeError):
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


def _current_branch() -> Branch | None:
    branch = _CURRENT.get()
    if branch is not None and not branch.is_run_by_another():
        return branch
    if _TaskFactory.was_given_contexts and (task := _current_task()) is not None and task in _by_task:
        return _by_task[task]
    # A library may carry the context variables of a task over to the one that started it.
    creators = () if branch is None else branch.ancestors()
    return next((creator for creator in creators if not creator.is_run_by_another()), branch)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without an event loop
        return None

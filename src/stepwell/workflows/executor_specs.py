"""Executors as a builder is given them: instances, classes, factories, or the id of one given elsewhere."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable, Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from stepwell.errors import DefinitionError
from stepwell.graph.edges import name_of
from stepwell.graph.executor import Executor
from stepwell.graph.persistent import persistent_names
from stepwell.model.payload import plain_copy

if TYPE_CHECKING:
    from stepwell.agents import Agent

ExecutorLike: TypeAlias = "Executor | type[Executor] | Callable[[], Executor] | Agent | str | Any"
"""What stands for an executor in a builder. Any: also an agent of a library that Stepwell knows."""


class Node(msgspec.Struct, frozen=True):
    """One executor of a definition: the pattern it was at `build()`, and how each run gets its own."""

    id: str
    pattern: Executor  # never runs
    given: Executor | None = None  # the very instance, for the first run
    factory: Callable[[], Executor] | None = None

    def make(self) -> Executor:
        made = self.pattern if self.factory is None else _made(self.factory)
        return made.clone() if made is self.pattern else made  # a factory may always give the same one


def node_of(given: ExecutorLike) -> Node:
    """The node an executor, a class or a factory stands for. Raises DefinitionError for anything else."""
    if isinstance(given, Executor):
        _begin_state(given)
        return Node(_checked_id(given), given, given=given)
    from stepwell.agents import AgentExecutor, is_agent

    if is_agent(given):
        return node_of(AgentExecutor(given))
    if inspect.iscoroutinefunction(given):
        raise DefinitionError(
            f"{name_of(given)!r} is an async function, not an executor: mark it with @executor, or make an agent of it "
            f"with AgentExecutor(...)"
        )
    if callable(given):
        made = _made(given)
        return Node(_checked_id(made), made, factory=given)
    raise DefinitionError(f"{given!r} is no executor: give an Executor, a subclass of it, or a function that makes one")


def identity(given: object) -> Hashable:
    """What makes two mentions of one executor the same. A method is a new object at each look, but the same factory."""
    if isinstance(given, MethodType):
        return id(given.__self__), given.__func__
    return id(given)


def frozen(node: Node) -> Node:
    """The node as it is now: what happens to the instance later does not change what later runs get."""
    return node if node.given is None else Node(node.id, node.given.clone(), given=node.given)


def _checked_id(executor: Executor) -> str:
    if not isinstance(executor.id, str) or not executor.id:  # a subclass may say its id itself
        raise DefinitionError(f"{type(executor).__name__} has the id {executor.id!r}, which is no non-empty string")
    return executor.id


def _made(factory: Callable[[], Any]) -> Executor:
    try:
        made = factory()
    except Exception as error:
        raise DefinitionError(
            f"{name_of(factory)!r} was called to make an executor and failed: {type(error).__name__}: {error}; "
            f"give an instance, a factory without parameters, or a function marked with @executor"
        ) from error
    if not isinstance(made, Executor):
        raise DefinitionError(f"{name_of(factory)!r} was called to make an executor, but it made {made!r}")
    return made


_BEGINNING = "_persistent_beginning"


def _begin_state(executor: Executor) -> None:
    """Keep what persistent attributes were before any run: a new run begins with that, not with a leftover."""
    if _BEGINNING not in vars(executor):
        names = persistent_names(type(executor))
        vars(executor)[_BEGINNING] = {n: plain_copy(vars(executor)[n]) for n in names if n in vars(executor)}


def _reset(executor: Executor) -> None:
    for name in persistent_names(type(executor)):
        vars(executor).pop(name, None)
    vars(executor).update(plain_copy(vars(executor).get(_BEGINNING, {})))


class Casting:
    """Gives each run its executors: the first run of a workflow the very instances, every other one clones."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._first = True
        self._lock = threading.Lock()

    def take(self) -> dict[str, Executor]:
        with self._lock:
            first, self._first = self._first, False
        taken = {id: self._one(node, first) for id, node in self._nodes.items()}
        for executor in taken.values():
            _reset(executor)
        return taken

    def give_back(self, executors: Mapping[str, Executor]) -> None:
        """The run that played with them has stopped."""
        with _BUSY_LOCK:
            for executor in executors.values():
                _BUSY.discard(id(executor))

    def _one(self, node: Node, first: bool) -> Executor:
        if first and node.given is not None:
            with _BUSY_LOCK:  # an instance given to two workflows plays in one run at a time
                if id(node.given) not in _BUSY:
                    _BUSY.add(id(node.given))
                    return node.given
        return node.make()


_BUSY: set[int] = set()
_BUSY_LOCK = threading.RLock()  # what is collected meanwhile may give its own back

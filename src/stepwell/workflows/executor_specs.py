"""Executors as callers pass them to a builder: instances, classes, factories, or ids of others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from stepwell.errors import DefinitionError
from stepwell.graph.edges import name_of
from stepwell.graph.executor import Executor, persistent_names
from stepwell.model.payload import plain_copy

if TYPE_CHECKING:
    from stepwell.agents import Agent

ExecutorLike: TypeAlias = "Executor | type[Executor] | Callable[[], Executor] | Agent | str | Any"
"""What a builder accepts as an executor. Any: it may be an agent of a library that Stepwell knows."""


class ExecutorSpec(msgspec.Struct, frozen=True):
    """One executor of a definition: a pattern of it as of `build()`, and how each run gets its own."""

    id: str
    pattern: Executor  # never called
    # The instance that was passed, for the first run.
    instance: Executor | None = None
    factory: Callable[[], Executor] | None = None

    def make(self) -> Executor:
        executor = self.pattern if self.factory is None else _call_factory(self.factory)
        # A factory may return one object each time.
        return executor.clone() if executor is self.pattern else executor


def spec_of(source: ExecutorLike) -> ExecutorSpec:
    """Return the spec of an executor, a class or a factory. Raises DefinitionError for anything else."""
    if isinstance(source, Executor):
        _begin_state(source)
        return ExecutorSpec(_valid_id(source), source, instance=source)
    from stepwell.agents import AgentExecutor, is_agent  # lazy: a program without agents does not load them

    if is_agent(source):
        return spec_of(AgentExecutor(source))
    if inspect.iscoroutinefunction(source):
        raise DefinitionError(
            f"{name_of(source)!r} is an async function, not an executor: mark it with @executor, or make an agent of "
            f"it with AgentExecutor(...)"
        )
    if callable(source):
        executor = _call_factory(source)
        return ExecutorSpec(_valid_id(executor), executor, factory=source)
    raise DefinitionError(
        f"{source!r} is not an executor: pass an Executor, a subclass of it, or a function that returns one"
    )


def identity(source: object) -> Hashable:
    """Return what identifies an executor. A bound method is a new object each time, but the same factory."""
    if isinstance(source, MethodType):
        return id(source.__self__), source.__func__
    return id(source)


def freeze(spec: ExecutorSpec) -> ExecutorSpec:
    """Return the spec as it is now: later changes to the instance do not affect later runs."""
    return spec if spec.instance is None else ExecutorSpec(spec.id, spec.instance.clone(), instance=spec.instance)


def _valid_id(executor: Executor) -> str:
    if not isinstance(executor.id, str) or not executor.id:  # a subclass may override `id`
        raise DefinitionError(f"{type(executor).__name__} has the id {executor.id!r}, which is not a non-empty string")
    return executor.id


def _call_factory(factory: Callable[[], Any]) -> Executor:
    try:
        executor = factory()
    except Exception as error:
        raise DefinitionError(
            f"{name_of(factory)!r} was called to make an executor and failed: {type(error).__name__}: {error}; "
            f"pass an instance, a factory without parameters, or a function marked with @executor"
        ) from error
    if not isinstance(executor, Executor):
        raise DefinitionError(f"{name_of(factory)!r} was called to make an executor, but it made {executor!r}")
    return executor


_BEGINNING = "_persistent_beginning"


def _begin_state(executor: Executor) -> None:
    """Keep the initial values of persistent attributes: a new run starts with them, not with leftovers."""
    if _BEGINNING not in vars(executor):
        names = persistent_names(type(executor))
        vars(executor)[_BEGINNING] = {n: plain_copy(vars(executor)[n]) for n in names if n in vars(executor)}


def reset_state(executor: Executor) -> None:
    """Give the persistent attributes their initial values again."""
    for name in persistent_names(type(executor)):
        vars(executor).pop(name, None)
    vars(executor).update(plain_copy(vars(executor).get(_BEGINNING, {})))

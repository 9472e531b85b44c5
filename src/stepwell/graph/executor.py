"""Executors, the nodes of a workflow: an id, one handler per message type, and perhaps persistent attributes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache, cached_property
from itertools import product
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from stepwell.errors import DefinitionError
from stepwell.graph.annotations import find_in_scope
from stepwell.graph.handler import HandlerSpec, is_marked, read_method
from stepwell.graph.retry import NO_LIMITS, Limits, RetryPolicy, limits
from stepwell.graph.type_matching import describe, is_instance_of, is_type_compatible, most_specific
from stepwell.model.payload import Payload, plain_copy

T = TypeVar("T")


class HandlerTable:
    """The handlers of an executor. The most specific one that accepts a value is chosen."""

    def __init__(self, specs: Iterable[HandlerSpec], problems: Iterable[str] = ()) -> None:
        all_specs = tuple(specs)
        self.specs = tuple(spec for spec in all_specs if spec.response is None and spec.timers is None)
        self.response_specs = tuple(spec for spec in all_specs if spec.response is not None)
        self.timer_specs = tuple(spec for spec in all_specs if spec.timers is not None)
        duplicates = (*_find_duplicates((*self.specs, *self.response_specs)), *_find_same_timers(self.timer_specs))
        self.problems = [*problems, *duplicates]
        self._entries = [(input_type, spec) for spec in self.specs for input_type in spec.input]
        self.input_types = tuple(input_type for input_type, _ in self._entries)
        self.output_types = tuple(dict.fromkeys(sent for spec in all_specs for sent in spec.output))
        outputs = (output for spec in all_specs for output in spec.workflow_output)
        self.workflow_output_types = tuple(dict.fromkeys(outputs))
        # Choices are cached by the class of the value, unless a type such as `list[int]` or a Protocol
        # looks at more than the class.
        self._by_class: dict[type, HandlerSpec | None] | None = (
            {} if all(type(input_type) is type for input_type in self.input_types) else None
        )

    def choose(self, value: object) -> HandlerSpec | None:
        """Return the handler that accepts the value, or None."""
        if self._by_class is None:
            return self._find(value)
        cls = type(value)
        if cls not in self._by_class:
            self._by_class[cls] = self._find(value)
        return self._by_class[cls]

    def choose_response_handler(self, request: object, response: object) -> HandlerSpec | None:
        """Return the handler that accepts this response to this request, or None."""
        candidates = [
            (request_type, response_type, spec)
            for spec in self.response_specs
            for request_type, response_type in product(spec.input, spec.response or ())
            if is_instance_of(request, request_type) and is_instance_of(response, response_type)
        ]
        # the request decides first, the response among those that are left
        if len(candidates) > 1:
            closest = candidates[most_specific([request_type for request_type, _, _ in candidates])][0]
            candidates = [entry for entry in candidates if entry[0] == closest]
        return candidates[most_specific([type_ for _, type_, _ in candidates])][2] if candidates else None

    def choose_timer_handler(self, name: str) -> HandlerSpec | None:
        """Return the handler of the timer with that name, or else that of all other timers, or None."""
        named = [spec for spec in self.timer_specs if name in (spec.timers or ())]
        return next(iter(named or [spec for spec in self.timer_specs if not spec.timers]), None)

    def response_types(self, request: object) -> tuple[object, ...]:
        """Return the types that the response handlers accept as a response to this request."""
        specs = [
            spec
            for spec in self.response_specs
            if any(is_instance_of(request, request_type) for request_type in spec.input)
        ]
        return tuple(dict.fromkeys(response_type for spec in specs for response_type in spec.response or ()))

    def every_spec(self) -> tuple[HandlerSpec, ...]:
        """Return all handlers, those of responses and timers included."""
        return (*self.specs, *self.response_specs, *self.timer_specs)

    def every_type(self) -> Iterable[object]:
        """Yield all types that the handlers name, so that a codec can know them before it reads anything."""
        for spec in self.every_spec():
            yield from (*spec.input, *spec.output, *spec.workflow_output, *(spec.response or ()))

    def _find(self, value: object) -> HandlerSpec | None:
        candidates = [(input_type, spec) for input_type, spec in self._entries if is_instance_of(value, input_type)]
        if len(candidates) <= 1:
            return candidates[0][1] if candidates else None
        return candidates[most_specific([input_type for input_type, _ in candidates])][1]


def _find_duplicates(specs: Iterable[HandlerSpec]) -> Iterable[str]:
    seen: dict[tuple[object, object], str] = {}
    for spec in specs:
        for pair in product(spec.input, (None,) if spec.response is None else spec.response):
            first = seen.setdefault(pair, spec.name)
            if first != spec.name:
                kind, types = "handlers", describe(pair[0])
                if spec.response is not None:
                    kind, types = "response handlers", f"{describe(pair[1])} as the response to {types}"
                yield f"{kind} {first!r} and {spec.name!r} both accept {types}"


def _find_same_timers(specs: Iterable[HandlerSpec]) -> Iterable[str]:
    seen: dict[str | None, str] = {}
    for spec in specs:
        for name in spec.timers or (None,):
            first = seen.setdefault(name, spec.name)
            if first != spec.name:
                which = "the timers that no other handler names" if name is None else f"the timer {name!r}"
                yield f"timer handlers {first!r} and {spec.name!r} both handle {which}"


class persistent(Generic[T]):  # noqa: N801 - reads as a word in a class body
    """An attribute that is saved in every checkpoint and restored with it. Each run has its own value.

    The default is copied, so with `persistent([])` each run has its own list.
    """

    def __init__(self, default: T) -> None:
        self._default, self._name = default, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        values = vars(instance)
        # Kept on the instance at the first access: `self.items.append(...)` must change the same list
        # that the next access returns.
        if self._name not in values:
            values[self._name] = plain_copy(self._default)
        return values[self._name]

    def __set__(self, instance: object, value: T) -> None:
        vars(instance)[self._name] = value


def persistent_names(cls: type) -> tuple[str, ...]:
    """Return the names of the persistent attributes of a class, those of its bases first."""
    # Any: `cache` requires a Hashable, and mypy does not accept a class as one.
    hashable: Any = cls
    return _names(hashable)


@cache
def _names(cls: type) -> tuple[str, ...]:
    attributes = {name: attribute for base in reversed(cls.__mro__) for name, attribute in vars(base).items()}
    return tuple(name for name, attribute in attributes.items() if isinstance(attribute, persistent))


class Executor:
    """A node of a workflow: subclass it and mark its handlers with `@handler`.

    Without an id it is named after its class. Attributes that handlers set belong to one run: every
    run works on its own instance or a clone. To survive a restart they must be declared with
    `persistent(...)`, or saved and restored by `on_checkpoint_save` and `on_checkpoint_restore`.

    `retry`, `timeout` and `idle_timeout` apply to those of its handlers that do not set their own.
    """

    # On the class, so that a subclass whose __init__ does not call ours has them too
    _executor_id: str | None = None
    _executor_limits: Limits = NO_LIMITS
    description: ClassVar[str | None] = None
    # What follows is for executors of ours. The names are private, and long, so that no attribute of a
    # user's subclass meets them by accident.
    # True if it keeps nothing between messages: then those of one superstep are handled concurrently.
    _handles_concurrently: ClassVar[bool] = False
    # True if a repetition of its handler must reach all steps that were made before.
    _is_durable_function: ClassVar[bool] = False
    # Prefixes of the state keys that belong to this executor, such as "agents/{id}/".
    _state_key_patterns: ClassVar[tuple[str, ...]] = ()
    # True if it emits `update` events while it works, before what they show is committed.
    _streams_updates: ClassVar[bool] = False
    # True if the run keeps the conversation of those it speaks for: it needs only what is new.
    _keeps_conversation: ClassVar[bool] = False

    def __init__(
        self,
        id: str | None = None,
        *,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        idle_timeout: float | timedelta | None = None,
    ) -> None:
        if id is not None and (not isinstance(id, str) or not id):
            raise ValueError(f"an executor id is a non-empty string, not {id!r}")
        self._executor_id = id
        self._executor_limits = limits(retry, timeout, idle_timeout)

    @property
    def id(self) -> str:
        """The stable name of the executor in the graph and in every checkpoint."""
        return self._executor_id or type(self).__name__

    @cached_property
    def _handler_table(self) -> HandlerTable:
        cls: Any = type(self)
        return table_of(cls)

    def _find_named(self, name: str) -> object:
        """Return what a name stands for in the code of its handlers; None if it stands for nothing there."""
        found = (find_in_scope(function, name) for function in self._functions())
        return next((value for value in found if value is not None), None)

    def _functions(self) -> list[Callable[..., Any]]:
        return [getattr(self, spec.name) for spec in self._handler_table.specs]

    @property
    def input_types(self) -> list[object]:
        return list(self._handler_table.input_types)

    @property
    def output_types(self) -> list[object]:
        return list(self._handler_table.output_types)

    @property
    def workflow_output_types(self) -> list[object]:
        return list(self._handler_table.workflow_output_types)

    def can_handle(self, message: object) -> bool:
        return self._handler_table.choose(message) is not None

    def is_request_supported(self, request_type: object, response_type: object) -> bool:
        """Return whether a response handler takes such responses to such requests."""
        return any(
            is_type_compatible(request_type, request) and is_type_compatible(response_type, response)
            for spec in self._handler_table.response_specs
            for request, response in product(spec.input, spec.response or ())
        )

    @property
    def type(self) -> str:
        """The name of its class."""
        return self.__class__.__name__

    def to_dict(self) -> dict[str, Any]:
        """Return its id and its type."""
        return {"id": self.id, "type": self.type}

    def _limits_for(self, spec: HandlerSpec) -> Limits:
        """Return the limits of a handler: its own, and for those it does not set, the executor's."""
        return spec.limits.or_else(self._executor_limits)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        """Return the state that must survive a restart, as data.

        Called for every executor when a run starts, then after each message that it handled; in a run
        without storage only if a retry or a response may have to restore it.
        """
        return {}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Restore what `on_checkpoint_save` returned. Called for every executor when a run is resumed."""

    def objections(self, state: Mapping[str, Payload]) -> Iterable[str]:
        """Yield why this executor could not resume a run with this state, one sentence each."""
        return ()

    def clone(self) -> Self:
        """Return an executor for another run: plain data is copied; clients, locks and the like are shared.

        References to the executor itself, or to its methods, become references to the clone.
        """
        # The clone must exist before the attributes are copied, so that references to `self` among them
        # can be replaced by it.
        clone = copy.copy(self)
        vars(clone).update(plain_copy(vars(self), {id(self): clone}))
        return clone

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"


def keeps_state(executor: Executor) -> bool:
    """Return whether an executor has anything to save: a hook or a persistent attribute."""
    cls = type(executor)
    hooked = cls.on_checkpoint_save is not Executor.on_checkpoint_save
    return hooked or bool(persistent_names(cls))


def has_hooks(executor: Executor) -> bool:
    """Return whether an executor saves or restores anything besides its persistent attributes."""
    # looked up on the instance, because hooks may be assigned to a single one
    saves = getattr(executor.on_checkpoint_save, "__func__", None) is not Executor.on_checkpoint_save
    return saves or getattr(executor.on_checkpoint_restore, "__func__", None) is not Executor.on_checkpoint_restore


@cache
def table_of(cls: type) -> HandlerTable:
    """Return the handlers of a class. A method that overrides a handler is one too, marked or not."""
    marked: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, attribute in vars(base).items():
            if is_marked(attribute):
                marked[name] = attribute
    specs: list[HandlerSpec] = []
    problems: list[str] = []
    for name, method in marked.items():
        try:
            # The types come from the marked method, the call goes to what has its name in the class now:
            # an override may be async where the original was plain, and the other way round.
            is_async = inspect.iscoroutinefunction(getattr(cls, name))
            specs.append(replace(read_method(method), name=name, is_async=is_async))
        except DefinitionError as error:
            problems += error.problems
    return HandlerTable(specs, problems)

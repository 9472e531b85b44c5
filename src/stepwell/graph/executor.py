"""An executor: an id, one handler per message type, and perhaps state of its own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar, Self

from stepwell.errors import DefinitionError
from stepwell.graph.handler import HandlerSpec, is_marked, read_method
from stepwell.graph.persistent import persistent_names
from stepwell.graph.retry import NO_LIMITS, Limits, RetryPolicy, limits
from stepwell.graph.type_matching import describe, is_instance_of, most_specific
from stepwell.model.payload import Payload, plain_copy


class HandlerTable:
    """The handlers of an executor, and which of them takes a value: the most specific one."""

    def __init__(self, specs: Iterable[HandlerSpec], problems: Iterable[str] = ()) -> None:
        every = tuple(specs)
        self.specs = tuple(spec for spec in every if spec.response is None)
        self.replies = tuple(spec for spec in every if spec.response is not None)
        self.problems = [*problems, *_duplicates(self.specs), *_duplicate_replies(self.replies)]
        self._entries = [(input_type, spec) for spec in self.specs for input_type in spec.input]
        # a choice may be kept by class only if nothing but the class of a value decides it
        self._by_class: dict[type, HandlerSpec | None] | None = (
            {} if all(type(input_type) is type for input_type, _ in self._entries) else None
        )

    def choose(self, value: object) -> HandlerSpec | None:
        """The handler that takes the value, or None."""
        if self._by_class is None:
            return self._find(value)
        cls = type(value)
        if cls not in self._by_class:
            self._by_class[cls] = self._find(value)
        return self._by_class[cls]

    def choose_reply(self, question: object, answer: object) -> HandlerSpec | None:
        """The response handler that takes this answer to this question, or None."""
        taking = [
            (request_type, response_type, spec)
            for spec in self.replies
            for request_type in spec.input
            for response_type in spec.response or ()
            if is_instance_of(question, request_type) and is_instance_of(answer, response_type)
        ]
        if len(taking) > 1:
            closest = taking[most_specific([request_type for request_type, _, _ in taking])][0]
            taking = [entry for entry in taking if entry[0] == closest]
        return taking[most_specific([response_type for _, response_type, _ in taking])][2] if taking else None

    def reply_types(self, question: object) -> tuple[object, ...]:
        """What the response handlers take as an answer to this question."""
        specs = [
            spec for spec in self.replies if any(is_instance_of(question, request_type) for request_type in spec.input)
        ]
        return tuple(dict.fromkeys(response_type for spec in specs for response_type in spec.response or ()))

    @property
    def input_types(self) -> tuple[object, ...]:
        return tuple(input_type for input_type, _ in self._entries)

    @property
    def output_types(self) -> tuple[object, ...]:
        return tuple(dict.fromkeys(t for spec in (*self.specs, *self.replies) for t in spec.output))

    @property
    def workflow_output_types(self) -> tuple[object, ...]:
        return tuple(dict.fromkeys(t for spec in (*self.specs, *self.replies) for t in spec.workflow_output))

    def every_type(self) -> Iterable[object]:
        """All that its handlers name: what may be in a message, an output, a question or an answer."""
        for spec in (*self.specs, *self.replies):
            yield from (*spec.input, *spec.output, *spec.workflow_output, *(spec.response or ()))

    def _find(self, value: object) -> HandlerSpec | None:
        taking = [(input_type, spec) for input_type, spec in self._entries if is_instance_of(value, input_type)]
        if len(taking) <= 1:
            return taking[0][1] if taking else None
        return taking[most_specific([input_type for input_type, _ in taking])][1]


def _duplicates(specs: tuple[HandlerSpec, ...]) -> Iterable[str]:
    seen: dict[object, str] = {}
    for spec in specs:
        for input_type in spec.input:
            first = seen.setdefault(input_type, spec.name)
            if first != spec.name:
                yield f"handlers {first!r} and {spec.name!r} both take {describe(input_type)}"


def _duplicate_replies(specs: tuple[HandlerSpec, ...]) -> Iterable[str]:
    seen: dict[tuple[object, object], str] = {}
    for spec in specs:
        for pair in [
            (request_type, response_type) for request_type in spec.input for response_type in spec.response or ()
        ]:
            first = seen.setdefault(pair, spec.name)
            if first != spec.name:
                words = f"{describe(pair[1])} as the answer to {describe(pair[0])}"
                yield f"response handlers {first!r} and {spec.name!r} both take {words}"


class Executor:
    """A node of a workflow: subclass it and mark its handlers with `@handler`.

    Without an id it is named after its class. Attributes set by handlers live in one run: every run
    works on its own instance or a clone. To survive a restart they must be declared `persistent(...)`
    or go through `on_checkpoint_save` and `on_checkpoint_restore`.

    `retry`, `timeout` and `idle_timeout` go for those of its handlers that do not say their own.
    """

    # also for a subclass whose __init__ does not call ours
    _executor_id: str | None = None
    _executor_limits: Limits = NO_LIMITS
    description: ClassVar[str | None] = None
    # What follows is for executors of ours. The names are private, and long, so that no attribute of a
    # user's subclass meets them by accident.
    # True if it keeps nothing between messages: then those of one superstep are handled concurrently.
    _handles_concurrently: ClassVar[bool] = False
    # Prefixes of the state keys that belong to this executor, such as "agents/{id}/".
    _state_key_patterns: ClassVar[tuple[str, ...]] = ()
    # True if it emits `update` events while it works, before what they show is committed.
    _streams_updates: ClassVar[bool] = False

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
        """Its stable name in the graph and in every checkpoint."""
        return self._executor_id or type(self).__name__

    @property
    def _handler_table(self) -> HandlerTable:
        cls: Any = type(self)
        return table_of(cls)

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

    def _handler_function(self, spec: HandlerSpec) -> Callable[..., Any]:
        """The function to call for a handler."""
        function: Callable[..., Any] = getattr(self, spec.name)
        return function

    def _limits_for(self, spec: HandlerSpec) -> Limits:
        """What a call of a handler is allowed: what the handler says, and where it says nothing, the executor."""
        return spec.limits.or_else(self._executor_limits)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        """What must survive, as data. Called for all executors at the input, then after each message handled."""
        return {}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Take back what `on_checkpoint_save` gave. Called for every executor when a run is resumed."""

    def objections(self, state: Mapping[str, Payload]) -> Iterable[str]:
        """Why it could not go on with a stored run that has this state, one sentence each; asked before it does."""
        return ()

    def clone(self) -> Self:
        """An executor for another run: plain data is copied, clients, locks and the like are shared.

        Where it holds itself or its own methods, the clone holds the clone's.
        """
        twin = copy.copy(self)
        vars(twin).update(plain_copy(vars(self), {id(self): twin}))
        return twin

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"


def keeps_state(executor: Executor) -> bool:
    """False if there is nothing to save: neither a hook nor a persistent attribute."""
    cls = type(executor)
    hooked = cls.on_checkpoint_save is not Executor.on_checkpoint_save
    return hooked or bool(persistent_names(cls))


def has_hooks(executor: Executor) -> bool:
    """Whether it saves or takes back something else than its persistent attributes."""
    saves = getattr(executor.on_checkpoint_save, "__func__", None) is not Executor.on_checkpoint_save
    return saves or getattr(executor.on_checkpoint_restore, "__func__", None) is not Executor.on_checkpoint_restore


@cache
def table_of(cls: type) -> HandlerTable:
    """The handlers of a class. A method that overrides a handler is one too, marked or not."""
    marked: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, attribute in vars(base).items():
            if is_marked(attribute):
                marked[name] = attribute
    specs: list[HandlerSpec] = []
    problems: list[str] = []
    for name, method in marked.items():
        try:
            # called by the name it has in the class, and as what stands there now: an override may be plain or async
            is_async = inspect.iscoroutinefunction(getattr(cls, name))
            specs.append(replace(read_method(method), name=name, is_async=is_async))
        except DefinitionError as error:
            problems += error.problems
    return HandlerTable(specs, problems)

"""Chooses the handler for a delivery, and calls it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from stepwell.engine.handler.context import HandlerContext
from stepwell.engine.handler.threads import run_in_own_thread, run_in_thread
from stepwell.engine.handler.time_limits import TimeLimit
from stepwell.errors import RoutingFailed
from stepwell.graph.executor import Executor
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.retry import NO_LIMITS, Limits
from stepwell.graph.type_matching import describe
from stepwell.model.message import Delivery


class ChosenHandler(msgspec.Struct, frozen=True):
    """A handler and its arguments."""

    executor: Executor
    spec: HandlerSpec
    arguments: list[Any]
    limits: Limits


def choose_handler(executor: Executor, delivery: Delivery, run_id: str) -> ChosenHandler:
    """Return the handler for a delivery, with a copy of the message decoded for it. Raises RoutingFailed if no
    handler accepts it."""
    value = delivery.payload.open()
    if delivery.timer is not None:
        arguments, spec = [value], executor._handler_table.choose_timer_handler(value)
    elif delivery.reply is None:
        arguments, spec = [value], executor._handler_table.choose(value)
    else:
        question = delivery.reply.question.open()
        arguments, spec = [question, value], executor._handler_table.choose_response_handler(question, value)
    if spec is None:
        raise _unroutable_error(executor, arguments, run_id, is_timer=delivery.timer is not None)
    limits = spec.limits if executor._executor_limits is NO_LIMITS else executor._limits_for(spec)
    return ChosenHandler(executor, spec, arguments, limits)


def _unroutable_error(executor: Executor, arguments: Sequence[Any], run_id: str, *, is_timer: bool) -> RoutingFailed:
    """Return the error for a delivery that no handler accepts. `arguments` are those of the handler.

    There are three such cases: the messages of a fan-in fit a handler one by one, but not together as a list;
    or the handler of a response, or of a timer, was removed after the request was made or the timer set.
    """
    *questions, value = arguments
    if is_timer:
        problem = f"{executor.id!r} has no handler for its timer {value!r}; add it again"
    elif questions:
        problem = (
            f"{executor.id!r} has no response handler for a request of type {type(questions[0]).__name__} and a "
            f"response of type {type(value).__name__}; add it again"
        )
    else:
        accepted = " | ".join(describe(item) for item in executor.input_types)
        problem = f"{executor.id!r} accepts {accepted}, but was sent {_describe_sent(value)}"
    return RoutingFailed(f"run {run_id!r}: {problem}", run_id=run_id)


def _describe_sent(value: Any) -> str:
    if not isinstance(value, list):
        return f"a {type(value).__name__}; add a handler that accepts it"
    kinds = " | ".join(dict.fromkeys(type(item).__name__ for item in value))
    return f"a {type(value).__name__}[{kinds}]; add a handler that accepts all of its items"


async def invoke(call: ChosenHandler, context: HandlerContext, limit: TimeLimit | None) -> None:
    """Call a handler, and send what it returns."""
    function = getattr(call.executor, call.spec.name)
    args = [*call.arguments, context] if call.spec.takes_context else call.arguments
    try:
        result: Any
        with context.branch:
            if call.spec.is_async:
                result = await function(*args)
            # A thread that runs out of time cannot be stopped; it must not occupy the shared pool.
            elif limit is not None:
                result = await run_in_own_thread(function, *args, name=call.executor.id, on_abandon=limit.abandon)
            else:
                result = await run_in_thread(function, *args)
            if result is not None and inspect.isawaitable(result):
                result = await result
    except GeneratorExit as error:
        # Raised by the handler; passed on, it would close the drive's generator.
        raise RuntimeError(f"{call.executor.id!r} raised GeneratorExit") from error
    except BaseException as error:
        await context.end_steps(error)
        raise
    if result is not None:
        context.send_message(result)

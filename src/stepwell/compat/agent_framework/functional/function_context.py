"""The run context of a function, and its steps."""

from __future__ import annotations

import copy
from typing import Any, Optional, TypeVar

from agent_framework import RunContext, WorkflowErrorDetails, WorkflowEvent
from agent_framework import StepWrapper as FrameworkStep
from agent_framework._workflows._functional import _active_run_ctx
from agent_framework._workflows._workflow import _coerce_request_info_response
from agent_framework.observability import OBSERVABILITY_SETTINGS

from stepwell.compat.agent_framework.nodes import LIVE_EVENT
from stepwell.engine.handler.internal_context import InternalContext
from stepwell.engine.intake.responses import make_request
from stepwell.graph.context import NO_DEFAULT
from stepwell.graph.step_options import StepOptions
from stepwell.model.event import WorkflowEvent as NativeEvent

R = TypeVar("R")

# What a step's record holds.
_RESULT, _STATE, _ASKED = "result", "state", "asked"


class FunctionContext(RunContext):
    """The framework's `RunContext` of one call of a function, on the context of its delivery."""

    def __init__(self, name: str, native: InternalContext, response_types: dict[str, Any], kwargs: Any) -> None:
        super().__init__(name, streaming=native.is_streaming(), run_kwargs=kwargs)
        self._native, self._response_types = native, response_types
        self._state = {key: native.get_state(key) for key in native.state_keys()}
        # Written since the last step was stored.
        self._new_state: dict[str, Any] = {}

    async def request_info(self, request_data: Any, response_type: type, *, request_id: str | None = None) -> Any:
        """Ask, and wait for the response: the run is left in the meantime, and nothing that is done is repeated."""
        if request_id is None:
            request_id = f"auto::{self._auto_request_info_index}"
            self._auto_request_info_index += 1
        self._response_types[request_id] = response_type
        native = self._native
        request = make_request(
            request_id,
            native.scope.graph.executors[native.executor_id],
            request_data,
            # The framework takes None as a response to anything.
            Optional[response_type],  # noqa: UP045 - it may be a value that has no operator
            deadline=None,
            default=NO_DEFAULT,
            pack=native.scope.pack,
            waiting="",
        )
        response = await native.ask_for_child(request)
        return None if response is None else _coerce_request_info_response(response, response_type, request_id)

    async def add_event(self, event: WorkflowEvent[Any]) -> None:
        """Emit an event while the function works."""
        self._native.add_event(NativeEvent(LIVE_EVENT, event))

    def set_state(self, key: str, value: Any) -> None:
        """Set a value of the run's state; it is stored with the next step, and at the end."""
        super().set_state(key, value)
        self._native.set_state(key, value)
        self._new_state[key] = value

    async def make_step(self, step: StepWrapper[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a step: the stored one, or that of a call."""
        was_called = False

        async def call() -> dict[str, Any]:
            nonlocal was_called
            was_called = True
            asked = self._auto_request_info_index
            result = await self._call(step, args, kwargs)
            written, self._new_state = self._new_state, {}
            return {_RESULT: result, _STATE: written, _ASKED: self._auto_request_info_index - asked}

        options = StepOptions(step.name, key=self._replay_key(step, args, kwargs))
        record = await self._native.step(options, call)
        result = record[_RESULT]
        if was_called:
            await self.add_event(WorkflowEvent.executor_completed(step.name, result))
            return result
        for key, value in record[_STATE].items():
            super().set_state(key, value)
            self._native.set_state(key, value)
        self._auto_request_info_index += record[_ASKED]
        await self.add_event(WorkflowEvent.executor_bypassed(step.name, result))
        return result

    async def _call(self, step: StepWrapper[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call_args, call_kwargs = step._build_call_args_with_ctx(self, args, kwargs)
        await self.add_event(WorkflowEvent.executor_invoked(step.name, _shown(args, kwargs)))
        try:
            return await step._func(*call_args, **call_kwargs)
        except Exception as error:
            await self.add_event(WorkflowEvent.executor_failed(step.name, error_details(error)))
            raise

    def _replay_key(self, step: StepWrapper[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Return what identifies a call, as the framework sees it; None if only its place does.

        Not its code: a run that is under way would execute an edited step again.
        """
        identity = step._get_replay_identity(args, kwargs)
        match identity:
            case "explicit", key:
                return self._get_explicit_step_cache_key(step.name, "", key)
            case "auto", key:
                return self._get_automatic_step_cache_key(step.name, "", key)
        return None


class StepWrapper(FrameworkStep[R]):
    """A function whose calls are steps, stored one by one."""

    async def __call__(self, *args: Any, **kwargs: Any) -> R:
        ctx = _active_run_ctx.get()
        if not isinstance(ctx, FunctionContext):
            return await super().__call__(*args, **kwargs)
        result: R = await ctx.make_step(self, args, kwargs)
        return result


def error_details(error: BaseException) -> WorkflowErrorDetails:
    """Return an error as events show it: without its text, unless the framework's settings allow that."""
    return WorkflowErrorDetails.from_exception(
        error, include_sensitive_data=OBSERVABILITY_SETTINGS.SENSITIVE_DATA_ENABLED
    )


def _shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the arguments of a call as an event shows them: copies, if they can be copied."""
    if not args and not kwargs:
        return None
    shown = {"args": args, "kwargs": kwargs}
    try:
        return copy.deepcopy(shown)
    except Exception:  # noqa: BLE001 - locks, sockets and the like are shown as they are, as the framework does
        return shown

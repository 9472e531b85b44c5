"""Starts runs, and says who moves them: shared by every protocol that this server speaks."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec

from stepwell.error_ids import ErrorId
from stepwell.errors import CodecError
from stepwell.graph.type_matching import describe, flatten
from stepwell.server.problems import RequestRefused
from stepwell.server.services import Services
from stepwell.storage.ids import new_run_id
from stepwell.storage.response_types import NotOfType, answer_as, schema_of
from stepwell.worker.slices import Served, workflow_of
from stepwell.workflows.run_signals import send_input
from stepwell.workflows.typed_input import read_any_input, read_typed_input
from stepwell.workflows.workflow import Workflow


def find_workflow(services: Services, name: str) -> Served:
    """Return a workflow that can be started here. Raises RequestRefused if there is none of that name."""
    served = services.workflows.get(name)
    if served is None:
        names = ", ".join(map(repr, services.workflows)) or "none"
        raise RequestRefused(
            HTTPStatus.NOT_FOUND,
            f"no workflow {name!r} can be started here; there are: {names}",
            "start the server with --work MODULE:WORKFLOW, or pass workflows=[...] to app()",
        )
    return served


async def start_run(
    services: Services,
    workflow: str,
    value: Any,
    *,
    text: str | None = None,
    by: str | None,
    run_id: str | None = None,
    tags: Mapping[str, str] | None = None,
    priority: int = 0,
) -> str:
    """Store a run, and return its id when it is durable. Nothing is executed here.

    `value` is the input in plain JSON; without it, `text` is the input as people type it. With the
    same `run_id`, the same input starts one run only. Raises RequestRefused if the input is
    not of the type that the workflow accepts, and InputMismatch if the run exists and was started with
    another one.
    """
    served = find_workflow(services, workflow)
    message: Any
    if isinstance(served, Workflow):
        message = _read_text(served, text) if value is None else read_message(served, value)
    else:
        run_id = run_id or new_run_id()
        value = read_any_input(text) if value is None else value
        message = await served.find_start_message(value, run_id, services.storage)
    return await workflow_of(served).submit(
        message, run_id=run_id, tags=tags, priority=priority, by=by, checkpoint_storage=services.storage
    )


async def send_message(services: Services, workflow: str, run_id: str, value: Any, *, key: str) -> bool:
    """Send further input to a run; False, sending nothing, if that was done with the same key.

    `value` is plain JSON. Raises RequestRefused if the workflow takes no such input, and RunError if
    the run failed or was cancelled.
    """
    served = find_workflow(services, workflow)
    if not isinstance(served, Workflow):
        raise RequestRefused(
            HTTPStatus.CONFLICT,
            f"{workflow!r} takes one input per run, and run {run_id!r} has it",
            "start another run",
        )
    message = read_message(served, value)
    archive = served._archive_on(services.storage)
    return await send_input(served._definition, archive, run_id, message, key=key)


def derive_run_id(*names: str) -> str:
    """Return the id of the run that an idempotency key stands for, always the same."""
    return str(uuid5(NAMESPACE_URL, msgspec.json.encode(names).decode()))


def input_types(served: Served) -> list[Any]:
    """Return what a workflow can be started with."""
    # The start executor of named agents takes a message of ours; people pass any input.
    return list(served.input_types) if isinstance(served, Workflow) else [Any]


def input_schema(served: Served) -> dict[str, Any]:
    """Return the JSON schema of what a workflow can be started with."""
    schemas = [msgspec.json.decode(schema_of(accepted), type=dict[str, Any]) for accepted in input_types(served)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def read_message(workflow: Workflow, value: Any) -> Any:
    """Convert plain JSON to what the start executor accepts; `{"$": ..., "v": ...}` names its class."""
    types = [member for accepted in workflow.input_types for member in flatten(accepted)]
    try:
        if isinstance(value, dict) and "$" in value:
            value = workflow._definition.codec.decode(msgspec.json.encode(value))
        return answer_as(value, types)
    except (NotOfType, CodecError) as error:
        wanted = " | ".join(dict.fromkeys(map(describe, types)))
        raise RequestRefused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"the input does not match {wanted}, the input of {workflow.name!r}: {error}",
            code=ErrorId.WRONG_INPUT,
        ) from None


def _read_text(workflow: Workflow, text: str | None) -> Any:
    try:
        return read_typed_input(text, workflow.input_types, workflow._definition.codec)
    except NotOfType as error:
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code=ErrorId.WRONG_INPUT) from None

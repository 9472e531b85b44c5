"""Parse `--input` into the message that the start executor accepts."""

from __future__ import annotations

from typing import Any

import stepwell
from stepwell.cli.failures import USAGE, CommandFailed
from stepwell.cli.input_text import GIVE_INPUT
from stepwell.cli.type_names import BuiltInStorage, Runnable
from stepwell.error_ids import ErrorId
from stepwell.storage.response_types import NotOfType
from stepwell.workflows.typed_input import NoInput, read_any_input, read_typed_input


async def make_message(runnable: Runnable, storage: BuiltInStorage, text: str | None, run_id: str) -> Any:
    """Build the message that a run starts with.

    Raises CommandFailed if the input does not match.
    """
    if isinstance(runnable, stepwell.Workflow):
        try:
            return read_typed_input(text, runnable.input_types, runnable._definition.codec)
        except NotOfType as error:
            hint = GIVE_INPUT if isinstance(error, NoInput) else ""
            raise CommandFailed(ErrorId.WRONG_INPUT, str(error), hint, USAGE) from None
    # The retention stands in the definition of such a workflow, not in the program.
    storage.retention = runnable.definition.retention
    return await runnable.find_start_message(read_any_input(text), run_id, storage)

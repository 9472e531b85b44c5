"""The responses that were passed to one call of `run`: checked when the run is opened, sent after its first commit."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stepwell import kernel
from stepwell.engine.intake.responses import check_no_caller, check_responses, explain_unknown, send_responses
from stepwell.engine.opening.drive_options import DriveOptions
from stepwell.engine.opening.open_run import StartingPoint
from stepwell.errors import UnknownRequest
from stepwell.graph.graph import Graph
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.payload import Payload
from stepwell.model.request import Request
from stepwell.model.signal import Signal
from stepwell.storage.archive import Archive


class PassedResponses(msgspec.Struct, frozen=True):
    """Responses of the requested types, and the requests that they answer."""

    answers: Mapping[str, Payload] = {}
    requests: Mapping[str, Request] = {}

    async def send(
        self, archive: Archive, at: Checkpoint, pending: Mapping[str, Signal], by: str | None
    ) -> Mapping[str, Signal]:
        """Store the responses; return the signals of the run, these included."""
        if not self.answers:
            return pending
        sent = await send_responses(
            archive, at, self.answers, requests=self.requests, pending=pending, by=by, as_driver=True
        )
        return {**pending, **{key: signal for key, signal in sent.items() if key not in pending}}


async def check_passed(graph: Graph, archive: Archive, run: StartingPoint, options: DriveOptions) -> PassedResponses:
    """Check the responses before anything is changed, a fork for them included.

    Raises UnknownRequest, ResponseRejected or RequestExpired, and RunError if they are meant for the run's caller.
    """
    if not options.responses or run.at is None:
        return PassedResponses()
    if options.caller is None and run.is_continued:
        check_no_caller(run.at)
    responses, requests = options.responses, kernel.open_requests(run.at, run.log)
    # A caller that crashed gives its sub-workflow run a response twice: skip it.
    if options.caller is not None:
        responses = {id: value for id, value in responses.items() if id in requests}
    signals = run.signals if run.is_continued else {}
    try:
        answers = check_responses(graph, run.at, responses, requests=requests, pending=signals, pack=archive.pack)
    except UnknownRequest as unknown:
        raise await explain_unknown(archive, unknown) from None
    return PassedResponses(answers, requests)

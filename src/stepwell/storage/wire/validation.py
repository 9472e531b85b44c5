"""Checks of a stored commit beyond its shape: its references exist, and its times are times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from stepwell.model.timing import CallTime
from stepwell.storage.checked_reads import damage_error, decode_stored, read_moment
from stepwell.storage.limits import LARGEST, flaw_in_time
from stepwell.storage.wire.shapes import WireCommit, WireRequest, WireRun

_read_schema = msgspec.json.Decoder(dict[str, Any]).decode


def check_commit(shape: WireCommit, what: object) -> None:
    """Raise CheckpointCorrupt, naming `what`, if a commit cannot have been written like this."""
    if shape.wake is not None:
        read_moment(shape.wake, f"the wake-up time in {what}")
    if shape.timers or shape.children or shape.messages:
        _check_timers(shape, what)
    check_requests(shape.asked, what)
    for answer in shape.answers:
        read_moment(answer.at, f"the answer to {answer.request_id!r} in {what}")
    if shape.run is not None:
        _check_run(shape.run, what)
    if shape.done:
        _check_done(shape, what)


def _check_timers(shape: WireCommit, what: object) -> None:
    times = [due for by_name in shape.timers.values() for due in by_name.values()]
    times += [child.wake for child in shape.children.values() if child is not None]
    times += [message.timer for message in shape.messages or ()]
    for due in times:
        if due is not None:
            read_moment(due, f"a timer in {what}")


def check_requests(requests: Iterable[WireRequest], what: object) -> None:
    """Raise CheckpointCorrupt, naming `what`, if a schema or a time of a request is damaged."""
    for request in requests:
        decode_stored(_read_schema, bytes(request.schema), f"the schema of request {request.id!r} in {what}")
        for stamp in (request.at, request.deadline):
            if stamp is not None:
                read_moment(stamp, f"request {request.id!r} in {what}")


def _check_run(run: WireRun, what: object) -> None:
    for part in ("executors", "edges"):
        names = run.signature.get(part, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise damage_error(what, f"the {part} in its signature are not a list of names")


def _check_time(time: CallTime | None, executor: str | None, what: object) -> None:
    if time is None:
        return
    if flaw := flaw_in_time(time.began):
        raise damage_error(what, f"the start of a call of {executor!r} {flaw}")
    if not 0 <= time.microseconds <= LARGEST:
        raise damage_error(what, f"a call of {executor!r} took {time.microseconds} microseconds")


def _check_done(shape: WireCommit, what: object) -> None:
    """Check times, and that the messages and requests that deliveries name are there: events need them."""
    for failure in shape.failures:
        _check_time(failure.time, failure.executor_id, what)
    sent, requests = {part.id for part in shape.messages or ()}, {part.id for part in shape.asked}
    for done in shape.done:
        _check_time(done.time, done.executor, what)
        for step in done.steps:
            _check_time(step.time, done.executor, what)
        for id in done.sent:
            if id not in sent:
                raise damage_error(what, f"{done.executor!r} sent message {id!r}, which is not in it")
        for id in done.asked:
            if id not in requests:
                raise damage_error(what, f"{done.executor!r} asked request {id!r}, which is not in it")

"""What stays of a superseded record if its run keeps only the latest checkpoint: the outputs."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.stored_values import Record
from stepwell.storage.wire.shapes import WireCommit

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WireCommit).decode


def outputs_alone(record: Record) -> Record:
    """Return the record without state, messages, requests, answers, errors and warnings.

    The result is a commit that changes nothing and holds the outputs that were yielded, or the fact
    that earlier ones were withdrawn (`restored`). It is read like any other commit. Applying the
    function twice changes nothing more, so it may be repeated after a crash.
    """
    entry = record.entry
    shape = decode_stored(_decode, record.body, entry)
    # The deliveries lose the names of the messages and requests they produced, because those are no
    # longer in the record, and reading would refuse the dangling names as damage.
    outputs = WireCommit(
        format=shape.format,
        kind=shape.kind,
        status=shape.status,
        iteration=shape.iteration,
        since_input=shape.since_input,
        place=shape.place,
        restored=shape.restored,
        done=[replace(done, sent=(), asked=()) for done in shape.done if done.outputs],
    )
    return Record(replace(entry, is_snapshot=False, decisions=False), _encode(outputs))

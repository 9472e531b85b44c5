"""What a run waits for: its open requests and its wake-up time."""

from __future__ import annotations

import msgspec

from stepwell.storage.port import CommitEffects, Entry, Pending, Wake
from stepwell.stores.files.layout import Cover, Origin


class Open(msgspec.Struct, frozen=True):
    """What a run waits for, and what is needed to read its records."""

    questions: tuple[Pending, ...] = ()
    wake: Wake | None = None
    origin: Origin | None = None  # only if the newest record has another one
    # Records were stored among others: their numbers are not the order of commits.
    shuffled: bool = False

    def after(self, entry: Entry, effects: CommitEffects) -> Open:
        """Return what is open once a record is the newest."""
        asked = {request.request_id: request for request in effects.asked}
        still_open = [
            request
            for request in self.questions
            if request.request_id not in effects.closed and request.request_id not in asked
        ]
        wake = None if effects.wake is None else Wake(entry.run_id, entry.workflow, effects.wake)
        return Open((*still_open, *asked.values()), wake, None, self.shuffled)

    def with_only(self, entry: Entry, effects: CommitEffects) -> Open:
        """Return what is open if a record is the newest and only its requests are."""
        return Open(shuffled=self.shuffled).after(entry, effects)

    def with_origin(self, newest: Cover, origin: Origin) -> Open:
        """Return the same with the origin of the run, unless the newest record has it."""
        return msgspec.structs.replace(self, origin=None if newest.origin == origin else origin)


NOTHING_OPEN = Open()

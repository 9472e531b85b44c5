"""What a run in a folder waits for."""

from __future__ import annotations

import msgspec

from stepwell.storage.port import CommitEffects, Entry, Pending, Wake
from stepwell.stores.files.layout import Cover, Origin


class Open(msgspec.Struct, frozen=True):
    """What a run waits for, and what has to be known to read its records."""

    questions: tuple[Pending, ...] = ()
    wake: Wake | None = None
    origin: Origin | None = None  # if the newest record does not say it
    shuffled: bool = False  # records were put among others: their numbers do not tell the order of commits

    def after(self, entry: Entry, effects: CommitEffects) -> Open:
        """What is open once a record is there that is the newest."""
        asked = {question.request_id: question for question in effects.asked}
        still_open = [q for q in self.questions if q.request_id not in effects.closed and q.request_id not in asked]
        wake = None if effects.wake is None else Wake(entry.run_id, entry.workflow, effects.wake)
        return Open((*still_open, *asked.values()), wake, None, self.shuffled)

    def anew(self, entry: Entry, effects: CommitEffects) -> Open:
        """The same, if nothing else is to be open."""
        return Open(shuffled=self.shuffled).after(entry, effects)

    def beside(self, newest: Cover, origin: Origin) -> Open:
        """The same, beside that record as the newest, if that is known of the run."""
        return msgspec.structs.replace(self, origin=None if newest.origin == origin else origin)


NOTHING_OPEN = Open()

"""What a rewrite of a run does: decided from the entries of its records, for every store alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stepwell.storage.conflicts import check_fence, check_workflow, follower_error, newest_error
from stepwell.storage.stored_values import CommitEffects, Entry, Record


class RewritePlan(NamedTuple):
    """What to change."""

    store: list[Record]  # records to be inserted, or to replace those of their numbers
    remove: set[int]  # the numbers of the records that go
    latest: int  # the highest number afterwards; -1: no record is left
    is_new_head: bool  # `effects.asked` and `effects.wake` are those of the run from now on


def plan_rewrite(
    run_id: str,
    entries: Mapping[int, Entry],
    fence: int,
    *,
    insert: Record | None,
    replace: Sequence[Record],
    remove: Sequence[int],
    effects: CommitEffects | None,
) -> RewritePlan:
    """Return what `Maintenance.rewrite` does to a run with these entries, by number, and this fence.

    Raises CommitConflict if it must be refused.
    """
    inserted = [] if insert is None else [insert]
    going = (entries.keys() & set(remove)) - {record.entry.number for record in inserted}
    stored = [record for record in replace if record.entry.number in entries.keys() - going] + inserted
    check_fence(run_id, None if effects is None else effects.fence, fence)
    newest = max(entries, default=-1)
    if newest in going and effects is None:
        raise newest_error(run_id, newest)
    changed = {record.entry.number for record in stored}
    for number in going:
        after = entries.get(number + 1)
        if after is not None and not after.is_snapshot and number + 1 not in going | changed:
            raise follower_error(run_id, number)
    for record in stored:
        check_workflow(record.entry, entries[newest].workflow if entries else record.entry.workflow)
    latest = max(entries.keys() - going | changed, default=-1)
    is_head = newest in going or any(record.entry.number == latest for record in inserted)
    return RewritePlan(stored, going, latest, is_head and effects is not None)

"""Sets a run aside that its drivers do not survive, so that it does not end one process after the other."""

from __future__ import annotations

from stepwell import kernel
from stepwell.engine.failures import details_of
from stepwell.errors import RunSetAside
from stepwell.kernel import CommitDecision
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.message import Plan
from stepwell.storage.ids import new_stamp


def decide_set_aside(at: Checkpoint, plan: Plan, takeovers: int, most: int | None) -> CommitDecision | None:
    """Return the commit that fails a run whose lease was taken over more than `most` times since its last commit."""
    if most is None or takeovers <= most:
        return None
    under_way = ", ".join(sorted({repr(delivery.executor) for delivery in plan.deliveries})) or "nothing"
    error = RunSetAside(
        f"run {at.run_id!r} is set aside: {takeovers} processes in a row that drove it died or fell silent, and "
        f"none of them made a commit; under way is {under_way}. Look at what those processes have logged; to try "
        f"again, resume the run",
        run_id=at.run_id,
    )
    stamp = new_stamp(at.run_id, at.header.epoch, at.number + 1)
    return CommitDecision(kernel.fail(at, (details_of(None, error),), stamp), None, error)

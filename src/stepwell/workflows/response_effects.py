"""Finds in the history of a sub-workflow run what a response to it led to."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.model.commit import Commit, CommitKind


def find_effects(commits: Sequence[Commit], request_id: str) -> Sequence[Commit] | None:
    """Return the commits between a response and the next one; None if it was never applied.

    If several were applied at once, the commits belong to the first of them.
    """
    begin = next((n for n, commit in enumerate(commits) if request_id in _applied_requests(commit)), None)
    if begin is None:
        return None
    if _applied_requests(commits[begin])[0] != request_id:
        return ()
    # An intake only sends it on; a handler that waited has used it in the commit itself.
    first = [] if commits[begin].kind is CommitKind.INTAKE else [commits[begin]]
    after = commits[begin + 1 :]
    return [*first, *after[: next((n for n, commit in enumerate(after) if _applied_requests(commit)), len(after))]]


def _applied_requests(commit: Commit) -> list[str]:
    """Return the requests whose responses a commit applied."""
    return [answer.request_id for answer in commit.answers]

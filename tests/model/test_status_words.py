"""The words people read for a run's status."""

from __future__ import annotations

import pytest

from stepwell import WorkflowRunState
from stepwell.model.status_words import STATUSES_BY_WORD, status_word


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("STARTED", "running"),
        ("IN_PROGRESS", "running"),
        ("IN_PROGRESS_PENDING_REQUESTS", "running"),
        ("IDLE_WITH_PENDING_REQUESTS", "waiting"),
        ("IDLE", "completed"),
        ("FAILED", "failed"),
        ("CANCELLED", "cancelled"),
    ],
)
def test_every_status_has_one_word(status: str, word: str) -> None:
    assert status_word(status) == status_word(WorkflowRunState(status)) == word


def test_a_running_run_that_wakes_later_is_sleeping() -> None:
    later = "2030-01-01T00:00:00+00:00"
    words = {status_word(status, wake=later) for status in WorkflowRunState}
    assert words == {"sleeping", "waiting", "completed", "failed", "cancelled"}


def test_every_status_is_behind_exactly_one_word() -> None:
    statuses = [status for behind in STATUSES_BY_WORD.values() for status in behind]
    assert sorted(statuses) == sorted(WorkflowRunState)


def test_a_text_that_is_not_a_status_is_returned_as_it_is() -> None:
    assert status_word("LATER") == "LATER"

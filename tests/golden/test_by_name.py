"""What runs of named agents ever stored is read, and they go on where they were, for ever."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import SQLiteCheckpointStorage, WorkflowRunState
from stepwell.declarative import AgentWorkflow, NodeApprovalRequest
from tests.support.golden_by_name import GoldenReview, agents, build_golden

STORES = sorted((Path(__file__).parent / "by_name").glob("v*.db"))


@pytest.fixture(params=STORES, ids=lambda path: path.stem)
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A copy of a golden store: reading must not change what is kept."""
    shutil.copy(request.param, tmp_path / "runs.db")
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        yield storage


def test_there_is_a_golden_store() -> None:
    assert [path.stem for path in STORES] == [f"v{number + 1}" for number in range(len(STORES))]
    assert STORES


async def test_the_definition_of_a_stored_run_is_the_one_it_began_with(storage: Any) -> None:
    found = await AgentWorkflow.of_run(storage, "waiting")
    bound = found.with_agents(agents([])).with_types(GoldenReview).build()
    assert bound.definition == build_golden(storage, []).definition


async def test_where_its_agents_are_is_read(storage: Any) -> None:
    head = await storage.get_latest(run_id="waiting")
    assert head.status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    stands = {key.removeprefix("nodes/"): one for key, one in head.state.items() if key.startswith("nodes/")}
    assert {id: (one.status, one.runs) for id, one in stands.items()} == {
        "desk": ("succeeded", 1),
        "other": ("skipped", 0),
        "draft": ("succeeded", 2),
        "lawyer": ("skipped", 0),
        "review": ("running", 2),
        "search": ("succeeded", 1),
        "cache": ("succeeded", 1),
    }


async def test_a_run_that_waits_in_the_middle_of_a_loop_goes_on_to_its_end(storage: Any) -> None:
    made: list[str] = []
    found = await AgentWorkflow.of_run(storage, "waiting")
    workflow = found.with_agents(agents(made)).with_types(GoldenReview).build()
    ((id, asked),) = (await workflow.resume("waiting")).requests.items()
    assert asked == NodeApprovalRequest("review", GoldenReview(4, "make it better"), "Is that so?")
    ((id, asked),) = (await workflow.resume("waiting", responses={id: asked.approve()})).requests.items()
    assert made == ["draft", "review"]
    result = await workflow.resume("waiting", responses={id: {"decision": "approve", "output": {"score": 9}}})
    assert result.output == "out: text better (9, found)"
    assert made == ["draft", "review", "publish"]
    assert result.outcome is not None
    assert set(result.outcome.skipped) == {"other", "lawyer"}


async def test_a_run_that_failed_does_only_what_is_left(storage: Any) -> None:
    made: list[str] = []
    result = await build_golden(storage, made).resume("failed")
    assert result.output == "out: text (8, found)"
    assert made == ["publish"]

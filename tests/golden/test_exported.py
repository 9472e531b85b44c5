"""Every version of an exported run that was ever released is read, and its run goes on, for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepwell import WorkflowRunState
from stepwell.admin.transfer.importer import import_from
from stepwell.storage import clock
from tests.support.golden_later import NEXT_CENTURY, build_counting, build_nested, build_sleeping
from tests.support.golden_workflow import GIVEN, build, build_asking

VERSIONS = sorted(path for path in (Path(__file__).parent / "exported").glob("v*"))


@pytest.fixture(params=VERSIONS, ids=[path.name for path in VERSIONS])
def exported(request: pytest.FixtureRequest) -> Path:
    return request.param  # type: ignore[no-any-return]


async def test_exported_runs_go_on(exported: Path, storage: Any) -> None:
    for path in sorted(exported.glob("*.stepwell")):
        if path.stem != "redacted":
            await import_from(path, storage)
    log = ["counted", "left"]
    result = await build(storage, broken=False).run(run_id="failed")
    assert result.get_outputs() == ["left was here", {"total": 6, "log": log, "parcel": GIVEN}]
    for run in ("waiting", "latest only"):
        result = await build_asking(storage).run(run_id=run, responses={"golden question": {"good": True}})
        assert result.get_outputs() == ["gold is good"]
    result = await build_nested(storage).run(run_id="nested", responses={"deal 3": {"done": True}})
    assert result.get_outputs() == ["clerk: offered for 3", "clerk: sold for 3"]
    assert (await build_counting(storage).run(run_id="sent to")).get_outputs() == [1, 11]
    assert (await build_counting(storage).run(run_id="moved back")).get_outputs() == [1]
    clock.set_source(lambda: NEXT_CENTURY.timestamp() + 1)
    try:
        result = await build_sleeping(storage, broken=False).run(run_id="asleep")
    finally:
        clock.set_source()
    assert sorted(result.get_outputs()) == ["good morning, at last", "good morning, at once"]
    await storage.close()


async def test_a_redacted_one_can_be_looked_at(exported: Path, storage: Any) -> None:
    await import_from(exported / "redacted.stepwell", storage, inspect_only=True)
    head = await storage.get_latest(run_id="failed")
    assert head.status is WorkflowRunState.FAILED
    assert head.to_dict()["state"] == {"log": ["counted"], "parcel": {"$": "removed"}, "scratch": 1}
    await storage.close()

"""The commands that read, on every kind of store: people and programs are told the same."""

from __future__ import annotations

import asyncio
import json
import shlex
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from stepwell import Executor, SQLiteCheckpointStorage, WorkflowBuilder, WorkflowContext, handler
from tests.support.command_line import Place, Say
from tests.support.operating_runs import Order, asking, counting


def document(result: Any) -> Any:
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["schema"] == 3
    return found


def rows(result: Any) -> list[list[str]]:
    assert result.exit_code == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()[1:]]


def test_list_tells_the_runs_that_began_last_first(place: Place, say: Say) -> None:
    place.fill()
    found = document(say("--store", place.address, "list", "--json"))
    assert [run["run_id"] for run in found["runs"]] == ["refund-7", "count-1"]
    assert found["next"] is None
    last = found["runs"][1]
    assert (last["workflow"], last["status"]) == ("counting", "completed")
    assert (last["number"], last["tags"]) == (3, {"team": "blue"})


def test_list_is_aligned_lines_where_nobody_looks(place: Place, say: Say) -> None:
    place.fill()
    told = say("list", "--store", place.address)
    assert [row[:4] for row in rows(told)] == [
        ["refund-7", "refunds", "waiting", "2"],
        ["count-1", "counting", "completed", "4"],
    ]
    first, *others = told.stdout.splitlines()
    assert all(line[first.index("STATUS") - 1] == " " != line[first.index("STATUS")] for line in others)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["--workflow", "counting"], ["count-1"]),
        (["--workflow", "nobody"], []),
        (["--status", "waiting"], ["refund-7"]),
        (["--status", "Completed"], ["count-1"]),
        (["--status", "failed"], []),
        (["--tag", "team=blue"], ["count-1"]),
        (["--tag", "team=blue", "--tag", "shift=late"], []),
        (["--prefix", "coun"], ["count-1"]),
        (["--text", "BLUE"], ["count-1"]),
        (["--text", "und", "--status", "waiting"], ["refund-7"]),
        (["--text", "numbers"], []),  # what a run holds is not looked into
        (["--contains", "NUMBERS"], ["count-1"]),
        (["--contains", "tea", "--text", "red"], ["refund-7"]),
        (["--contains", "coffee"], []),
        (["--since", "1h"], ["refund-7", "count-1"]),
        (["--until", "1h"], []),
        (["--since", "2020-01-01", "--until", "2020-01-02"], []),
        (["--changed-since", "2020-01-01"], ["refund-7", "count-1"]),
        (["--changed-until", "2020-01-01"], []),
        (["--limit", "1"], ["refund-7"]),
        (["--after", "refu"], ["count-1"]),
        (["--after", "count-1"], []),
    ],
)
def test_list_keeps_what_matches(sqlite: Place, say: Say, asked: list[str], found: list[str]) -> None:
    told = document(say("--store", sqlite.address, "list", *asked, "--json"))
    assert [run["run_id"] for run in told["runs"]] == found
    if not found:
        plain = say("--store", sqlite.address, "list", *asked)
        assert (plain.stdout, plain.stderr) == ("", "no run matches\n")


def test_a_page_says_where_the_next_one_begins(sqlite: Place, say: Say) -> None:
    assert document(say("--store", sqlite.address, "list", "--limit", "1", "--json"))["next"] == "refund-7"
    assert say("--store", sqlite.address, "list", "--limit", "1").stderr == "more runs: --after refund-7\n"


def test_show_says_where_a_run_is_and_what_it_holds(place: Place, say: Say) -> None:
    place.fill()
    told = say("--store", place.address, "show", "refund-7")
    assert told.exit_code == 0, told.stderr
    assert told.stdout.splitlines()[:2] == [
        'Run refund-7 of refunds is waiting for a response. desk asks: {"id":7,"lines":["tea"]}',
        f"next: {shlex.join(['stepwell', 'respond', 'refund-7', 'refund-7', '--store', place.address])}",
    ]
    for line in (
        "run           refund-7@1",
        "status        waiting",
        "tags          team=red",
        "called        desk (1 time)",
        "input",
        "1 open request",
        "  order: (Order)",
        "    lines:",
        "      - tea",
    ):
        assert line in told.stdout.splitlines()
    found = document(say("--store", place.address, "show", "refund-7", "--json"))
    assert found["state"] == {"order": {"id": 7, "lines": ["tea"]}}
    assert found["requests"]["refund-7"]["response_type"] == "bool"


def test_show_goes_back_to_any_commit(place: Place, say: Say) -> None:
    place.fill()
    found = [document(say("--store", place.address, "show", f"count@{n}", "--json")) for n in range(4)]
    assert [one["state"].get("numbers", []) for one in found] == [[], [1], [1, 2], [1, 2, 3]]
    assert [one["progress"]["next"] for one in found] == [["count"], ["count"], ["count"], []]
    assert [one["progress"]["called"] for one in found] == [{}, {"count": 1}, {"count": 2}, {"count": 3}]
    assert document(say("--store", place.address, "show", found[2]["checkpoint_id"], "--json")) == found[2]
    for named in ("2", "-2", found[2]["checkpoint_id"]):
        assert document(say("--store", place.address, "show", "count-1", "--json", "--", named)) == found[2]
    other = say("--store", place.address, "show", "refund-7", found[2]["checkpoint_id"])
    assert (other.exit_code, "belongs to run 'count-1', not to run 'refund-7'" in other.stderr) == (3, True)


def test_show_says_that_a_history_is_not_whole(say: Say, tmp_path: Any) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")

    async def made() -> None:
        await counting(storage).run(1, run_id="long-1")
        await storage.delete((await storage.list_checkpoint_ids(run_id="long-1"))[1])
        await storage.close()

    asyncio.run(made())
    found = document(say("--store", "sqlite:///runs.db", "show", "long-1", "--json"))
    assert found["progress"]["history_is_whole"] is False
    assert "in the commits that are stored" in say("--store", "sqlite:///runs.db", "show", "long-1").stdout


def test_show_does_not_say_of_a_fork_that_its_parent_called_nobody(sqlite: Place, say: Say) -> None:
    say("--store", sqlite.address, "fork", "refund-7", "--as", "fork-7")
    found = document(say("--store", sqlite.address, "show", "fork-7", "--json"))["progress"]
    assert (found["asking"], found["not_called"], found["history_is_whole"]) == (["desk"], [], False)


def test_a_list_says_whether_it_was_asked_for_something(sqlite: Place, say: Say) -> None:
    assert say("--store", sqlite.address, "list", "--workflow", "").stderr == "no run matches\n"


def test_show_counts_the_calls_of_the_newest_commits(say: Say, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(import_module("stepwell.admin.overview.run_overview"), "RECENT", 2)
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")

    async def made() -> None:
        await counting(storage).run(1, run_id="long-1")
        await storage.close()

    asyncio.run(made())
    found = document(say("--store", "sqlite:///runs.db", "show", "long-1", "--json"))["progress"]
    assert (found["called"], found["history_is_whole"], found["counted_since"]) == ({"count": 2}, False, 2)
    assert "since commit 2" in say("--store", "sqlite:///runs.db", "show", "long-1").stdout
    whole = document(say("--store", "sqlite:///runs.db", "show", "long-1", "--full", "--json"))["progress"]
    assert (whole["called"], whole["history_is_whole"], whole["counted_since"]) == ({"count": 3}, True, 0)


class Teller(Executor):
    @handler
    async def tell(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state("text", text)
        ctx.set_state("many", list(range(100)))
        await ctx.yield_output(text)


def test_large_values_are_cut_unless_they_are_wanted(say: Say, tmp_path: Any) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    flow = WorkflowBuilder(name="telling", start_executor=Teller("teller"), checkpoint_storage=storage).build()

    async def made() -> None:
        await flow.run("x" * 5000, run_id="large-1")
        await storage.close()

    asyncio.run(made())
    cut = say("--store", "sqlite:///runs.db", "show", "large-1").stdout
    assert f"  text: {'x' * 200}... (5000 characters)" in cut.splitlines()
    assert "    ... and 80 more" in cut.splitlines()
    full = say("--store", "sqlite:///runs.db", "show", "large-1", "--full").stdout
    assert f"  text: {'x' * 5000}" in full.splitlines()
    assert "    - 99" in full.splitlines()
    assert document(say("--store", "sqlite:///runs.db", "show", "large-1", "--json"))["state"]["text"] == "x" * 5000


def test_what_is_stored_gives_a_terminal_no_orders(say: Say, tmp_path: Any) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    flow = WorkflowBuilder(name="tell\x1b[31m", start_executor=Teller("teller"), checkpoint_storage=storage).build()

    async def made() -> None:
        await flow.run("a\x1b]0;owned\x07b\nc", run_id="odd-1", tags={"x\x1b": "\r\n"})
        await storage.close()

    asyncio.run(made())
    for asked in (["list"], ["show", "odd-1"], ["events", "odd-1"]):
        told = say("--store", "sqlite:///runs.db", *asked)
        assert told.exit_code == 0
        assert not {c for c in told.stdout if c != "\n" and not c.isprintable()}
        assert "\\x1b" in told.stdout


def test_events_are_those_of_the_history(place: Place, say: Say) -> None:
    place.fill()
    told = say("--store", place.address, "events", "count-1", "--json")
    assert told.exit_code == 0, told.stderr
    found = [json.loads(line) for line in told.stdout.splitlines()]
    assert {one["schema"] for one in found} == {3}
    assert [(one["commit"], one["type"]) for one in found] == [
        (1, "executor_completed"),
        (1, "superstep_completed"),
        (2, "executor_completed"),
        (2, "superstep_completed"),
        (3, "output"),
        (3, "executor_completed"),
        (3, "superstep_completed"),
        (3, "status"),
    ]
    assert found[4]["data"] == [1, 2, 3]
    assert found[5]["data"] == [[1, 2, 3]]
    plain = say("--store", place.address, "events", "count-1").stdout.splitlines()
    assert len(plain) == 8
    assert plain[4].endswith("output  executor=count  [1,2,3]")


def test_events_say_what_failed(say: Say, tmp_path: Any) -> None:
    class Broken(Executor):
        @handler
        async def go(self, number: int, ctx: WorkflowContext[None, int]) -> None:
            raise ValueError("no more tea")

    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    flow = WorkflowBuilder(name="breaking", start_executor=Broken("broken"), checkpoint_storage=storage).build()

    async def made() -> None:
        with pytest.raises(Exception, match="no more tea"):
            await flow.run(1, run_id="broken-1")
        await storage.close()

    asyncio.run(made())
    lines = say("--store", "sqlite:///runs.db", "events", "broken-1", "--json").stdout.splitlines()
    assert {"executor_failed", "failed"} <= {json.loads(line)["type"] for line in lines}
    assert any("no more tea" in json.loads(line).get("error", "") for line in lines)
    shown = say("--store", "sqlite:///runs.db", "show", "broken-1")
    assert shown.exit_code == 0  # it was shown; the run is what failed
    assert "status        failed" in shown.stdout
    assert "no more tea" in shown.stdout
    assert rows(say("--store", "sqlite:///runs.db", "list", "--status", "failed"))[0][0] == "broken-1"


def test_requests_are_the_inbox_of_all_runs_oldest_first(place: Place, say: Say, later: Any) -> None:
    async def made() -> None:
        for number in (1, 2, 3):
            await asking(place.storage).run(Order(number, ["tea"]), run_id=f"refund-{number}")
            later(minutes=5)
        await place.storage.close()

    asyncio.run(made())
    found = document(say("--store", place.address, "requests", "--json"))["requests"]
    assert [one["run_id"] for one in found] == ["refund-1", "refund-2", "refund-3"]
    assert [one["age_seconds"] // 60 for one in found] == [15, 10, 5]
    assert found[0]["response_schema"] == {"type": "boolean"}
    first = rows(say("--store", place.address, "requests"))[0]
    assert first == [
        "refund-1",
        "refund-1",
        "refunds",
        "desk",
        '{"id":1,"lines":["tea"]}',
        "bool",
        "15",
        "min",
        "-",
        "-",
    ]
    assert document(say("--store", place.address, "requests", "--workflow", "nobody", "--json"))["requests"] == []
    assert say("--store", place.address, "requests", "--workflow", "nobody").stderr == "no request matches\n"


def test_a_question_whose_answer_is_there_says_so(place: Place, say: Say) -> None:
    place.fill()
    asked = ["--store", place.address, "requests"]
    assert [one["answered"] for one in document(say(*asked, "--json"))["requests"]] == [False]
    assert say("--store", place.address, "respond", "refund-7", "--response", "true").exit_code == 0
    assert [one["answered"] for one in document(say(*asked, "--json"))["requests"]] == [True]
    assert rows(say(*asked))[0][-1] == "yes"


def test_requests_are_found_by_age_and_deadline(place: Place, say: Say, later: Any) -> None:
    async def made() -> None:
        for number, minutes in ((1, None), (2, 60), (3, 20)):
            deadline = None if minutes is None else timedelta(minutes=minutes)
            await asking(place.storage, deadline=deadline).run(Order(number, ["tea"]), run_id=f"refund-{number}")
            later(minutes=5)
        await place.storage.close()

    def found(*asked: str) -> list[str]:
        told = document(say("--store", place.address, "requests", *asked, "--json"))["requests"]
        return [one["run_id"] for one in told]

    asyncio.run(made())
    assert found("--older-than", "7min") == ["refund-1", "refund-2"]
    assert found("--overdue") == []
    assert found("--due-within", "1h") == ["refund-3", "refund-2"]
    assert found("--due-within", "30min") == found("--due-within", "2h", "--run", "refund-3") == ["refund-3"]
    later(minutes=25)
    assert found("--overdue") == ["refund-3"]
    assert say("--store", place.address, "requests", "--overdue", "--older-than", "1d").stderr == "no request matches\n"


def test_requests_come_in_pages(place: Place, say: Say) -> None:
    async def made() -> None:
        for number in range(5):
            await asking(place.storage).run(Order(number, ["tea"]), run_id=f"refund/{number}")
        await place.storage.close()

    asyncio.run(made())
    pages, after = list[str](), list[str]()
    while True:
        told = document(say("--store", place.address, "requests", "--limit", "2", *after, "--json"))
        pages += [one["run_id"] for one in told["requests"]]
        if told["next"] is None:
            break
        after = ["--after", told["next"]]
    assert pages == [f"refund/{number}" for number in range(5)]
    assert "more requests: --after refund/1/" in say("--store", place.address, "requests", "--limit", "2").stderr
    first = document(say("--store", place.address, "requests", "--limit", "1", "--json"))["next"]
    assert first.startswith("refund/0/")
    run_id, _, request_id = first.rpartition("/")
    short = f"{run_id}/{request_id[:5]}"
    assert document(say("--store", place.address, "requests", "--after", short, "--json"))["requests"][0]["run_id"] == (
        "refund/1"
    )
    many = say("--store", place.address, "requests", "--after", "refu/some")
    assert (many.exit_code, "use more characters of the id" in many.stderr) == (2, True)
    gone = say("--store", place.address, "requests", "--after", "other/1/some")
    assert gone.exit_code == 3
    assert "start again without --after" in gone.stderr


@pytest.mark.parametrize(
    "asked",
    [["requests", "--older-than", "soon"], ["requests", "--overdue", "--due-within", "1h"], ["list", "--since", "x"]],
)
def test_a_time_that_is_none_is_refused(sqlite: Place, say: Say, asked: list[str]) -> None:
    assert say("--store", sqlite.address, *asked).exit_code == 2

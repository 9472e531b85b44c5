"""Calls of real MCP servers by agents of pydantic-ai are steps: what was called is not called again."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ToolCallPart

from stepwell import HandlerFailed, InMemoryCheckpointStorage, RetryPolicy, WorkflowBuilder, workflow
from stepwell.agents.adapters.pydantic_ai import StepConfig, StepwellDurability
from stepwell.functional import DurableFunction
from stepwell.testing import crash_everywhere
from tests.agents.mcp_server import INSTRUCTIONS
from tests.agents.mcp_worker import ACCOUNTS, ROUNDS, SERVER, call_with_key
from tests.agents.pydantic_ai_scripts import Script, calls, text_of
from tests.agents.test_pydantic_ai_durability import steps_of

pytestmark = pytest.mark.process


class Bank:
    """An MCP server over HTTP, in a process of its own, that writes down its calls."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process = subprocess.Popen([sys.executable, str(SERVER), str(ledger), str(self.port)])
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None, "the MCP server has ended"
                assert time.monotonic() < deadline, "the MCP server does not listen"
                time.sleep(0.05)

    def toolset(self, **options: Any) -> MCPToolset[None]:
        url = f"http://127.0.0.1:{self.port}/mcp"
        return MCPToolset(url, id="bank", process_tool_call=call_with_key, **options)

    def called(self) -> list[str]:
        """Return the accounts that were called about, with the keys of the calls, and forget them."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        self.ledger.unlink(missing_ok=True)
        return lines

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    bank = Bank(tmp_path_factory.mktemp("mcp") / "ledger")
    yield bank
    bank.stop()


@pytest.fixture
def bank(server: Bank) -> Bank:
    server.called()
    return server


def office_of(script: Script, toolset: MCPToolset[None], fails: int = 0, **options: Any) -> DurableFunction[str, str]:
    agent = Agent(script.model, name="clerk", toolsets=[toolset], capabilities=[StepwellDurability[None](**options)])
    failures = [1] * fails

    @workflow(name="office", checkpoint_storage=InMemoryCheckpointStorage())
    async def office(task: str) -> str:
        answer = (await agent.run(task)).output
        if failures:
            raise RuntimeError(f"failure {failures.pop()}")
        return answer

    return office


async def test_discovery_instructions_and_calls_are_steps_and_are_recalled(bank: Bank) -> None:
    script = Script(calls(("charge", {"account": "a"})), "done")
    office = office_of(script, bank.toolset(include_instructions=True), fails=1)
    with pytest.raises(HandlerFailed, match="failure 1"):
        await office.run("go", run_id="r")
    result = await office.run(run_id="r")
    assert result.get_outputs() == ["done"]
    (line,) = bank.called()
    account, key = line.split()
    assert (account, len(key)) == ("a", 36)
    assert script.results() == ["charged a"]
    assert INSTRUCTIONS in str(script.given[0][0])
    # These names are stored: a change of one strands runs that are under way.
    assert sorted(set(steps_of(result))) == [
        "clerk__mcp_server__bank.call_tool",
        "clerk__mcp_server__bank.get_instructions",
        "clerk__mcp_server__bank.get_tools",
        "clerk__model.request",
    ]


async def test_a_recalled_run_needs_no_server(tmp_path: Path) -> None:
    bank = Bank(tmp_path / "ledger")
    office = office_of(Script(calls(("charge", {"account": "a"})), "done"), bank.toolset(), fails=1)
    try:
        with pytest.raises(HandlerFailed, match="failure 1"):
            await office.run("go", run_id="r")
    finally:
        bank.stop()
    assert (await office.run(run_id="r")).get_outputs() == ["done"]


async def test_calls_at_once_survive_a_crash_at_every_write(bank: Bank) -> None:
    class Forgetful(Script):
        def _reply(self, messages: Any, info: Any) -> Any:
            rounds: list[Any] = [
                calls(("charge", {"account": "a"}), ("charge", {"account": "b"})),
                calls(("charge", {"account": "c"})),
                "done",
            ]
            self._replies = rounds[len(messages) // 2 :]
            return super()._reply(messages, info)

    report = await crash_everywhere(office_of(Forgetful(), bank.toolset()), "go")
    counts = Counter(line.split()[0] for line in bank.called())
    assert set(counts) == {"a", "b", "c"}
    # A call is made again only where the crash came before the write of its result, and both of a round may have been.
    assert all(report.runs <= count <= report.runs + 4 for count in counts.values())


async def test_an_error_of_the_server_is_stored_and_seen_by_the_model(bank: Bank) -> None:
    script = Script(calls(("refuse", {"account": "a"})), "sorry")
    office = office_of(script, bank.toolset(), fails=1)
    with pytest.raises(HandlerFailed, match="failure 1"):
        await office.run("go", run_id="r")
    assert (await office.run(run_id="r")).get_outputs() == ["sorry"]
    assert bank.called() == ["refused a"]
    assert "the account is closed" in str(script.given[-1])


async def test_a_server_that_is_away_is_tried_again_as_configured(tmp_path: Path) -> None:
    bank = Bank(tmp_path / "ledger")
    toolset = bank.toolset()
    bank.stop()
    config = StepConfig(retry=RetryPolicy(max_attempts=3, initial_interval=0.01))
    office = office_of(Script("done"), toolset, tools=config)
    stream = office.run("go", run_id="r", stream=True)
    seen: list[str] = []

    async def watch() -> None:
        async for event in stream:
            seen.append(event.type)

    with pytest.raises(HandlerFailed):
        await watch()
    assert seen.count("executor_retrying") == 2


async def test_a_tool_of_a_server_cannot_be_kept_from_being_a_step(bank: Bank) -> None:
    class Marked(MCPToolset[None]):
        async def get_tools(self, ctx: Any) -> Any:
            tools = await super().get_tools(ctx)
            for tool in tools.values():
                tool.tool_def.metadata = {"stepwell": False}
            return tools

    toolset = Marked(f"http://127.0.0.1:{bank.port}/mcp", id="bank")
    office = office_of(Script(calls(("charge", {"account": "a"}))), toolset)
    with pytest.raises(HandlerFailed, match="cannot run outside a durable step"):
        await office.run("go")
    with pytest.raises(UserError, match="id"):
        Agent(
            Script().model,
            name="clerk",
            toolsets=[MCPToolset[None](f"http://127.0.0.1:{bank.port}/mcp")],
            capabilities=[StepwellDurability[None]()],
        )


async def test_the_adapter_makes_its_calls_steps_too(bank: Bank) -> None:
    script = Script([ToolCallPart("charge", {"account": "a"}, "1")], "done")
    agent = Agent(script.model, name="clerk", toolsets=[bank.toolset()])
    graph = WorkflowBuilder(start_executor=agent, checkpoint_storage=InMemoryCheckpointStorage()).build()
    assert await text_of(graph) == "done"
    (line,) = bank.called()
    assert line.startswith("a ")
    assert len(line.split()[1]) == 36


def test_an_agent_with_a_server_of_its_own_survives_sigkill(tmp_path: Path) -> None:
    database, ledger = tmp_path / "runs.db", tmp_path / "ledger"
    command = [sys.executable, "-m", "tests.agents.mcp_worker", str(database), str(ledger)]
    kills = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        before = _count_lines(ledger)
        while process.poll() is None and (kills == 3 or _count_lines(ledger) <= before + kills):
            time.sleep(0.002)
        if process.poll() is None:
            process.kill()
            kills += 1
        printed, _ = process.communicate(timeout=60)
        if process.returncode == 0:
            break
    lines = ledger.read_text().splitlines()
    assert (kills, printed.strip()) == (3, "['done']")
    assert len(set(lines)) == ROUNDS * ACCOUNTS, "every attempt at a call has the same key"
    # At a kill, at most the calls of one round were under way.
    assert len(lines) <= ROUNDS * ACCOUNTS + kills * ACCOUNTS


def _count_lines(ledger: Path) -> int:
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


async def test_the_process_of_a_server_ends_with_the_run(tmp_path: Path) -> None:
    transport = StdioTransport(sys.executable, [str(SERVER), str(tmp_path / "ledger")], keep_alive=False)
    toolset = MCPToolset[None](transport, id="bank")
    office = office_of(Script(calls(("charge", {"account": "a"})), "done"), toolset)
    children = _children()
    assert (await office.run("go")).get_outputs() == ["done"]
    assert not toolset.is_running
    await asyncio.to_thread(_wait_for_the_end_of_others_than, children)


def _wait_for_the_end_of_others_than(children: set[str]) -> None:
    deadline = time.monotonic() + 20
    while _children() - children:
        assert time.monotonic() < deadline, "a process of the run is still there"
        time.sleep(0.05)


def _children() -> set[str]:
    """Return the processes that this one has started and that still run."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}

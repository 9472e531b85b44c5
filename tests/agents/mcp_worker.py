"""A process that drives an agent with an MCP server of its own: mcp_worker.py DATABASE LEDGER."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelResponse, RunContext
from pydantic_ai.mcp import CallToolFunc, MCPToolset
from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from stepwell import SQLiteCheckpointStorage, workflow
from stepwell.agents import current_tool_call
from stepwell.agents.adapters.pydantic_ai import StepwellDurability

ROUNDS, ACCOUNTS = 6, 2
SERVER = Path(__file__).with_name("mcp_server.py")


async def call_with_key(ctx: RunContext[Any], call_tool: CallToolFunc, name: str, arguments: dict[str, Any]) -> Any:
    """Make a call, and give the server the idempotency key of its step."""
    return await call_tool(name, arguments, metadata={"idempotency_key": current_tool_call().idempotency_key})


def charge_in_rounds(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that charges accounts in rounds, several at once."""
    number = len(messages) // 2
    if number == ROUNDS:
        return ModelResponse([TextPart("done")])
    accounts = [f"{number}-{n}" for n in range(ACCOUNTS)]
    return ModelResponse([ToolCallPart("charge", {"account": account}, account) for account in accounts])


async def main() -> None:
    bank = MCPToolset[None](
        StdioTransport(sys.executable, [str(SERVER), sys.argv[2]]), id="bank", process_tool_call=call_with_key
    )
    agent = Agent(
        FunctionModel(charge_in_rounds), name="clerk", toolsets=[bank], capabilities=[StepwellDurability[None]()]
    )
    storage = SQLiteCheckpointStorage(Path(sys.argv[1]))

    @workflow(checkpoint_storage=storage)
    async def office(task: str) -> str:
        return (await agent.run(task)).output

    result = await office.run("go", run_id="office")
    await storage.close()
    print(result.get_outputs())


if __name__ == "__main__":
    asyncio.run(main())

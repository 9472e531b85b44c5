"""Concurrent agents; one of them fails, and only that one is called again.

    python concurrent_agents.py

Three experts answer at the same time, and a function counts their votes.
"""

import asyncio

from stepwell import HandlerFailed, InMemoryCheckpointStorage
from stepwell.agents import AgentExecutorResponse, Fails, ScriptedAgent
from stepwell.orchestrations import ConcurrentBuilder


def count(results: list[AgentExecutorResponse]) -> str:
    votes = {result.executor_id: result.agent_response.text for result in results}
    return f"{sum(vote.startswith('yes') for vote in votes.values())} of {len(votes)} say yes: {votes}"


async def main() -> None:
    experts = [
        ScriptedAgent("legal", ["yes, with a warning"]),
        ScriptedAgent("sales", [Fails(ConnectionError("the model does not answer")), "yes"]),
        ScriptedAgent("design", ["no"]),
    ]
    builder = ConcurrentBuilder(participants=experts, checkpoint_storage=InMemoryCheckpointStorage())
    workflow = builder.with_aggregator(count).build()
    try:
        await workflow.run("May we sell a lamp without a switch?", run_id="lamp")
    except HandlerFailed as error:
        print(f"failed: {error.__cause__}")
    result = await workflow.run(run_id="lamp")
    print(result.get_outputs()[0])
    print(f"models were called: { {expert.name: expert.calls.count('model') for expert in experts} }")


if __name__ == "__main__":
    asyncio.run(main())

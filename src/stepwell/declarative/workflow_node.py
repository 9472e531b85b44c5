"""A node whose agent is a workflow.

The workflow runs in a second executor beside the node. The node sends it the prompt and treats its
answer like that of an agent.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.agents.conversation import AgentContext, conversation_of, length_of, say
from stepwell.agents.messages import AgentExecutorRequest, AgentExecutorResponse, AgentResponse
from stepwell.declarative.definition import INNER_PREFIX, Node
from stepwell.declarative.node import NodeExecutor
from stepwell.declarative.node_graph import NodeGraph
from stepwell.declarative.transcripts import Threads
from stepwell.graph.handler import handler
from stepwell.orchestrations.participants import AbsentAgent


def inner_id(id: str) -> str:
    """Return the id of the executor that runs the workflow of a node."""
    return INNER_PREFIX + id


def node_of(executor_id: str) -> str:
    """Return the id of the node that an executor belongs to."""
    return executor_id.removeprefix(INNER_PREFIX)


class WorkflowNode(NodeExecutor):
    """Passes its prompt to the workflow beside it, and publishes the answer as its own."""

    def __init__(self, graph: NodeGraph, node: Node, types: Mapping[str, type], threads: Threads | None) -> None:
        super().__init__(graph, node, AbsentAgent(node.id), types, threads, {})

    async def respond(self, ctx: AgentContext) -> None:
        """Send the conversation to the workflow. It starts afresh: the node has the transcript."""
        request = AgentExecutorRequest(conversation_of(self.id, ctx), afresh=True)
        await ctx.send_message(request, target_id=inner_id(self.id))  # type: ignore[arg-type]

    @handler
    async def handle_executor_response(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """Add the answer of the workflow to the conversation, and publish it."""
        answer, before = response.agent_response, length_of(self.id, ctx)
        messages = say(self.id, answer.messages, ctx)
        own_response = AgentResponse(messages, answer.usage, answer.value)
        await self._review(AgentExecutorResponse(self.id, own_response, before), ctx)

"""A node whose agent is a workflow: the workflow has an executor of its own beside the node, which speaks for it."""

from __future__ import annotations

from collections.abc import Mapping

from stepwell.agents.conversation import AgentContext, conversation_of, length_of, say
from stepwell.agents.messages import AgentExecutorRequest, AgentExecutorResponse, AgentResponse
from stepwell.agents.replies import Answer
from stepwell.agents.turn import Turn
from stepwell.declarative.definition import Node
from stepwell.declarative.node import NodeExecutor
from stepwell.declarative.schedule import NodeGraph
from stepwell.declarative.transcripts import Threads
from stepwell.graph.handler import handler

_INSIDE = "inside "


def inner_id(id: str) -> str:
    """The id of the executor that runs the workflow of a node."""
    return _INSIDE + id


def node_of(executor_id: str) -> str:
    """The node that an executor belongs to."""
    return executor_id.removeprefix(_INSIDE)


class _Elsewhere:
    """Stands where an agent would be: the workflow answers instead."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def take_turn(self, turn: Turn) -> Answer:
        raise AssertionError(f"{self.name!r} is a workflow, and takes no turn itself")


class TeamNode(NodeExecutor):
    """Passes on what the node is told, and takes the answer as its own."""

    def __init__(self, graph: NodeGraph, node: Node, types: Mapping[str, type], threads: Threads | None) -> None:
        super().__init__(graph, node, _Elsewhere(node.id), types, threads, {})

    async def respond(self, ctx: AgentContext) -> None:
        request = AgentExecutorRequest(conversation_of(self.id, ctx), afresh=True)
        await ctx.send_message(request, target_id=inner_id(self.id))  # type: ignore[arg-type]

    @handler
    async def handle_executor_response(self, response: AgentExecutorResponse, ctx: AgentContext) -> None:
        """The workflow has answered."""
        answer, before = response.agent_response, length_of(self.id, ctx)
        messages = say(self.id, answer.messages, ctx)
        whole = AgentResponse(messages, answer.usage, answer.value)
        await self._review(AgentExecutorResponse(self.id, whole, before), ctx)

"""A workflow as an agent inside another workflow: it takes messages as agents do, and each answer is a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from stepwell.agents import AgentExecutorRequest, AgentExecutorResponse, AgentResponse, Message, Usage, messages_of
from stepwell.agents.conversation import conversation_of, forget, hear, length_of, say, send_on
from stepwell.agents.messages import total, usage_key
from stepwell.engine.handler.internal_context import InternalContext
from stepwell.errors import DefinitionError
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.subworkflow import InnerTable, SubWorkflowRequestMessage, SubWorkflowResponseMessage
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.request import Request
from stepwell.workflows.subworkflow import WorkflowExecutor
from stepwell.workflows.workflow import Workflow
from stepwell.workflows.workflow_agent import WorkflowAgent, as_response, combine

_INPUT_TYPES = (AgentExecutorRequest, AgentExecutorResponse, AgentResponse, str, Message, list[str | Message])


class WorkflowAgentExecutor(WorkflowExecutor):
    """A workflow that takes part as an agent: messages are added to its conversation, which a run of the workflow
    answers. Requests of that run are asked by the calling workflow."""

    _handles_concurrently = False  # a conversation has an order

    def __init__(self, agent: WorkflowAgent, id: str | None = None) -> None:
        if not isinstance(agent.workflow, Workflow):
            raise DefinitionError(f"{agent!r} is not made of a workflow that can stand inside another")
        super().__init__(agent.workflow, id or agent.name, propagate_request=True)
        self.agent: WorkflowAgent = agent
        self._forwarded_types = ()
        common: dict[str, Any] = {
            "output": (AgentExecutorResponse, SubWorkflowRequestMessage),
            "workflow_output": (AgentResponse,),
            "takes_context": True,
            "is_async": True,
        }
        specs = [
            HandlerSpec("handle_messages", input=_INPUT_TYPES, **common),
            HandlerSpec("handle_sibling_answer", input=(SubWorkflowResponseMessage,), **common),
            HandlerSpec("handle_response", input=(Any,), response=(Any,), **common),
        ]
        self._handler_table = InnerTable(specs, agent.workflow.executors)

    async def handle_messages(self, message: Any, ctx: InternalContext) -> None:
        """Add messages to the conversation, and answer it with a run of the workflow if a response is wanted."""
        if isinstance(message, AgentExecutorRequest) and message.afresh:
            forget(self.id, ctx)
        hear(self.id, _messages(message, ctx), ctx)
        if not isinstance(message, AgentExecutorRequest) or message.should_respond:
            await self.call(self.agent._as_input(conversation_of(self.id, ctx)), ctx)

    async def _pass_on(
        self, ctx: InternalContext, key: str, outputs: Iterable[Any], requests: Iterable[Request], at: Checkpoint
    ) -> None:
        """Collect what the run yields; when it no longer waits, that is the answer."""
        # In the state of the calling run: a conversation that waits outlives its superstep.
        so_far = f"agents/{self.id}/said/{key}"
        ctx.append_state(so_far, *(as_response(output, self.id) for output in outputs))
        for request in requests:
            ctx.forward_request(replace(request, executor=self.id, child=key))
        if at.requests:
            return
        whole = combine(ctx.get_state(so_far, []), self.id)
        if ctx.get_state(so_far) is not None:
            ctx.delete_state(so_far)
        before = length_of(self.id, ctx)
        usage = _usage_in(at) or whole.usage
        ctx.set_state(usage_key(self.id), ctx.get_state(usage_key(self.id), Usage()) + usage)
        response = AgentResponse(say(self.id, whole.messages, ctx), usage, whole.value)
        await send_on(AgentExecutorResponse(self.id, response, before), ctx)


def _usage_in(at: Checkpoint) -> Usage | None:
    """Return the usage of all agents of a run, whether or not their answers are outputs; None if there are none."""
    usages = [at.state[key].open() for key in at.state if key.startswith("agents/") and key.endswith("/usage")]
    return total(usages) if usages else None


def _messages(message: Any, ctx: InternalContext) -> list[Message]:
    match message:
        case AgentExecutorRequest():
            return list(message.messages)
        case AgentExecutorResponse():
            return message.full_conversation(ctx)
        case AgentResponse():
            return list(message.messages)
    return messages_of(message)

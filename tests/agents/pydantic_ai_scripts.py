"""What the tests of agents of pydantic-ai share: models that follow a script."""

from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from stepwell import AgentExecutor, InMemoryCheckpointStorage, Workflow, WorkflowBuilder

Reply = str | list[Any]


class Script:
    """A model that replies in this order, however often it is made anew, and remembers what it was given."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self._replies = list(replies)
        self.given: list[list[ModelMessage]] = []

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self._reply)

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.given.append(list(messages))
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return ModelResponse([TextPart(reply)] if isinstance(reply, str) else reply)

    def parts(self, *kinds: type[Any]) -> list[Any]:
        """The parts of these kinds that the model was given last."""
        return [part for message in self.given[-1] for part in message.parts if isinstance(part, kinds)]

    def results(self) -> list[Any]:
        return [part.content for part in self.parts(ToolReturnPart)]


def calls(*tools: tuple[str, dict[str, Any]]) -> list[ToolCallPart]:
    return [ToolCallPart(name, arguments, f"call-{n}") for n, (name, arguments) in enumerate(tools)]


def alone(agent: Any, **options: Any) -> Workflow:
    start = AgentExecutor(agent, **options)
    return WorkflowBuilder(name="alone", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()


async def text_of(workflow: Workflow, said: Any = "go") -> str:
    text: str = (await workflow.run(said)).get_outputs()[-1].text
    return text

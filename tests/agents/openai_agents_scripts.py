"""What the tests of agents of the OpenAI Agents SDK share: models that follow a script."""

from typing import Any

from agents import (
    Model,
    ModelResponse,
    RunContextWrapper,
    Usage,
    set_tracing_disabled,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from stepwell import AgentExecutor, InMemoryCheckpointStorage, Workflow, WorkflowBuilder

set_tracing_disabled(True)  # nothing is sent away


def script(*replies: Any) -> ScriptedModel:
    """A model that says these texts, makes these calls, fails with these errors."""
    return ScriptedModel([[assistant_message(one)] if isinstance(one, str) else one for one in replies])


def calls(*tools: tuple[str, dict[str, Any]], reply: int = 1) -> list[Any]:
    return [function_call(name, given, call_id=f"call-{reply}-{n}") for n, (name, given) in enumerate(tools)]


def alone(agent: Any, **options: Any) -> Workflow:
    start = AgentExecutor(agent, id="clerk", **options)
    return WorkflowBuilder(name="alone", start_executor=start, checkpoint_storage=InMemoryCheckpointStorage()).build()


def asked(model: ScriptedModel) -> list[Any]:
    """What the model was asked last."""
    assert model.last_call is not None
    items: list[Any] = model.last_call.input
    return items


def results(model: ScriptedModel) -> list[Any]:
    return [item["output"] for item in asked(model) if item.get("type") == "function_call_output"]


async def say(workflow: Workflow, text: str, run_id: str) -> str:
    """Say something more to a run that is done."""
    handle = workflow.attach(run_id, drive=True)
    await handle.send(text)
    answer: str = (await handle.result()).get_outputs()[-1].text
    return answer


async def big(ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
    return bool(arguments["amount"] > 100)


class Echo(Model):
    """Replies by what it is given alone, and at once: it calls each tool that it has, and says what they gave."""

    def __init__(self) -> None:
        self.calls = 0

    async def get_response(
        self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *given: Any, **known: Any
    ) -> ModelResponse:
        self.calls += 1
        items = [] if isinstance(input, str) else input
        said = [item["output"] for item in items if item.get("type") == "function_call_output"]
        output = [function_call(tool.name, self._arguments(tool), call_id=f"call-{tool.name}") for tool in tools]
        if said or not tools:
            output = [assistant_message(f"{system_instructions}: {', '.join(said)}")]
        return ModelResponse(output, Usage(requests=1, input_tokens=5, output_tokens=2, total_tokens=7), None)

    def _arguments(self, tool: Any) -> dict[str, Any]:
        values = {"integer": 200, "string": "go on"}
        return {name: values[about["type"]] for name, about in tool.params_json_schema["properties"].items()}

    def stream_response(self, *given: Any, **known: Any) -> Any:
        raise NotImplementedError

"""Stepwell as a durability engine of pydantic-ai: what the library asks of an engine, and what we promise besides."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext, Tool
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.toolsets import DynamicToolset
from pydantic_ai.usage import UsageLimits

from stepwell import (
    HandlerFailed,
    InMemoryCheckpointStorage,
    RetryPolicy,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    step,
    workflow,
)
from stepwell.agents import current_tool_call
from stepwell.agents.adapters.pydantic_ai import StepConfig, StepwellDurability, recalled_usage
from stepwell.functional import DurableFunction
from stepwell.model.timing import StepRecord
from stepwell.testing import Ledger, crash_everywhere
from tests.agents.pydantic_ai_scripts import Script, calls


class Clerk:
    """An agent with a scripted model and tools that count their calls."""

    def __init__(self, *replies: Any, model: FunctionModel | None = None, **options: Any) -> None:
        self.script, self.called = Script(*replies), list[str]()
        tools = options.pop("tools", ())
        durability = options.pop("durability", None) or StepwellDurability[None]()
        self.agent: Agent[None, str] = Agent(
            model or self.script.model,
            name="clerk",
            toolsets=[FunctionToolset([self.look, self.pay, *tools], id="desk")],
            capabilities=[durability, *options.pop("capabilities", ())],
            **options,
        )

    def look(self, what: str) -> str:
        self.called.append(f"look {what}")
        return what.upper()

    async def pay(self, amount: int) -> str:
        self.called.append(f"pay {amount} {current_tool_call().idempotency_key[:4]}")
        return f"paid {amount}"

    def function(self, *, fails: int = 0) -> DurableFunction[str, str]:
        failures = [1] * fails

        @workflow(name="office", checkpoint_storage=InMemoryCheckpointStorage())
        async def office(task: str) -> str:
            answer = (await self.agent.run(task)).output
            if failures:
                raise RuntimeError(f"failure {failures.pop()}")
            return str(answer)

        return office


def steps_of(result: Any) -> list[str]:
    records: list[StepRecord] = [e for event in result if event.type == "executor_completed" for e in event.steps]
    return [record.name for record in records]


ERRAND = (calls(("look", {"what": "it"}), ("pay", {"amount": 3})), "done")


async def test_each_request_and_each_tool_call_is_a_step_with_a_stable_name() -> None:
    result = await Clerk(*ERRAND).function().run("go", run_id="r")
    assert result.get_outputs() == ["done"]
    # These names are stored: a change of one strands runs that are under way.
    assert sorted(steps_of(result)) == [
        "clerk__function_toolset__desk.call_tool:look",
        "clerk__function_toolset__desk.call_tool:pay",
        "clerk__model.request",
        "clerk__model.request",
    ]


async def test_a_repetition_gets_the_stored_results() -> None:
    clerk = Clerk(*ERRAND)
    office = clerk.function(fails=1)
    with pytest.raises(HandlerFailed, match="failure 1"):
        await office.run("go", run_id="r")
    assert (await office.run(run_id="r")).get_outputs() == ["done"]
    assert len(clerk.script.given) == 2
    assert sorted(call.split()[0] for call in clerk.called) == ["look", "pay"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_it_survives_a_crash_at_every_write(streamed: bool) -> None:
    ledger = Ledger()

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return Script(*ERRAND[len(messages) // 2 :])._reply(messages, info)

    async def charge(amount: int) -> str:
        ledger.do(current_tool_call().idempotency_key, "charge", amount)
        return f"charged {amount}"

    agent = Agent(
        stream_of(reply) if streamed else FunctionModel(reply),
        name="clerk",
        toolsets=[FunctionToolset([Tool(charge, name="pay"), Tool(lambda what: what, name="look")], id="desk")],
        capabilities=[StepwellDurability[None](emit_updates=streamed)],
    )

    @workflow
    async def office(task: str) -> str:
        first, second = await asyncio.gather(agent.run(task), agent.run("also"))
        return first.output + second.output

    await crash_everywhere(office, "go", ledger=ledger)
    assert ledger.effects == [("charge", 3), ("charge", 3)]


async def test_it_works_in_a_handler_of_a_graph() -> None:
    clerk = Clerk(*ERRAND)
    failures = [1]

    @executor
    async def node(task: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output((await clerk.agent.run(task)).output)
        if failures:
            raise RuntimeError(f"failure {failures.pop()}")

    graph = WorkflowBuilder(start_executor=node, checkpoint_storage=InMemoryCheckpointStorage()).build()
    with pytest.raises(HandlerFailed):
        await graph.run("go", run_id="r")
    assert (await graph.run(run_id="r")).get_outputs() == ["done"]
    assert len(clerk.script.given) == 2


async def test_outside_of_runs_and_inside_a_step_the_agent_is_as_it_was() -> None:
    clerk = Clerk("alone")
    assert (await clerk.agent.run("go")).output == "alone"
    inside = Clerk("one step")

    @step
    async def whole(task: str) -> str:
        return (await inside.agent.run(task)).output

    @workflow
    async def office(task: str) -> str:
        return await whole(task)

    result = await office.run("go")
    assert (result.get_outputs(), steps_of(result)) == (["one step"], ["whole"])


async def test_tools_have_their_own_configuration_and_some_are_no_steps() -> None:
    attempts = list[int]()

    def flaky(what: str) -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError(what)
        return what

    def plain(what: str) -> str:
        return what

    config = StepConfig(retry=RetryPolicy(max_attempts=3, initial_interval=0), timeout=5)
    tools = [Tool(flaky, metadata={"stepwell": config}), Tool(plain, metadata={"stepwell": False})]
    clerk = Clerk(calls(("flaky", {"what": "a"}), ("plain", {"what": "b"})), "done", tools=tools)
    result = await clerk.function().run("go")
    assert steps_of(result).count("clerk__function_toolset__desk.call_tool:flaky") == 1
    assert "clerk__function_toolset__desk.call_tool:plain" not in steps_of(result)
    assert (len(attempts), clerk.script.results()) == (3, ["a", "b"])
    wrong = Clerk(calls(("plain", {"what": "b"})), tools=[Tool(plain, metadata={"stepwell": "no"})])
    with pytest.raises(HandlerFailed, match="is a StepConfig or False"):
        await wrong.function().run("go")


async def test_requests_to_the_model_are_retried_as_configured() -> None:
    config = StepConfig(retry=RetryPolicy(max_attempts=2, initial_interval=0))
    clerk = Clerk(ConnectionError("busy"), "done", durability=StepwellDurability[None](model=config))
    assert (await clerk.function().run("go")).get_outputs() == ["done"]


async def test_events_are_handled_again_as_configured() -> None:
    broken, seen = [1], list[str]()

    async def handle(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            if event.event_kind == "function_tool_call":
                seen.append(event.event_kind)
                if broken:
                    broken.pop()
                    raise ConnectionError("the log is away")

    config = StepConfig(retry=RetryPolicy(max_attempts=2, initial_interval=0))
    script = Script(calls(("look", {"what": "it"})), "done")
    durability = StepwellDurability[None](event_stream_handler=handle, events=config)
    office = Clerk(model=stream_of(script._reply), durability=durability).function()
    assert (await office.run("go")).get_outputs() == ["done"]
    assert len(seen) == 2


async def test_what_a_tool_says_by_an_exception_is_stored_as_a_result() -> None:
    tried = list[int]()

    def picky(number: int) -> str:
        tried.append(number)
        if number < 5:
            raise ModelRetry("higher")
        return "fine"

    clerk = Clerk(calls(("picky", {"number": 1})), calls(("picky", {"number": 7})), "done", tools=[picky])
    office = clerk.function(fails=1)
    with pytest.raises(HandlerFailed, match="failure 1"):
        await office.run("go", run_id="r")
    assert (await office.run(run_id="r")).get_outputs() == ["done"]
    assert (tried, len(clerk.script.given)) == ([1, 7], 3)


async def test_a_run_has_the_same_id_conversation_and_deadline_when_it_is_repeated() -> None:
    seen = list[tuple[Any, Any]]()

    def who(ctx: RunContext[None]) -> str:
        seen.append((ctx.run_id, ctx.conversation_id))
        return "you"

    tool = Tool(who, metadata={"stepwell": False})
    clerk = Clerk(calls(("who", {})), "done", tools=[tool])
    failures = [1]

    @workflow(checkpoint_storage=InMemoryCheckpointStorage())
    async def office(task: str) -> str:
        answer = (await clerk.agent.run(task, timeout=60)).output
        if failures:
            raise RuntimeError(f"failure {failures.pop()}")
        return answer

    with pytest.raises(HandlerFailed):
        await office.run("go", run_id="r")
    result = await office.run(run_id="r")
    assert steps_of(result).count("clerk__run_start_time") == 1
    assert len(seen) == 2
    assert seen[0] == seen[1]


async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for word in ("one ", "two ", "three"):
        yield word


async def test_the_text_is_emitted_while_it_arrives_and_again_when_it_is_recalled() -> None:
    clerk = Clerk(model=FunctionModel(stream_function=say), durability=StepwellDurability[None](emit_updates=True))
    office = clerk.function(fails=1)

    async def updates(**options: Any) -> list[Any]:
        texts: list[Any] = []
        try:
            async for event in office.run(stream=True, run_id="r", **options):
                if event.type == "update":
                    texts.append(event.data.text)
                elif event.type == "withdrawn":
                    texts.append("withdrawn")
        except HandlerFailed:
            texts.append("failed")
        return texts

    assert await updates(message="go") == ["one ", "two ", "three", "withdrawn", "failed"]
    assert await updates() == ["one two three"]


async def test_text_of_a_request_that_failed_is_withdrawn() -> None:
    broken = [1]

    async def breaks(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "half "
        if broken:
            broken.pop()
            raise ConnectionError("cut")
        yield "whole"

    config = StepConfig(retry=RetryPolicy(max_attempts=2, initial_interval=0))
    durability = StepwellDurability[None](emit_updates=True, model=config)
    clerk = Clerk(model=FunctionModel(stream_function=breaks), durability=durability)
    seen: list[Any] = []
    async for event in clerk.function().run("go", stream=True):
        if event.type in ("update", "withdrawn"):
            seen.append(event.data if event.type == "withdrawn" else event.data.text)
    assert seen == ["half ", 1, "half ", "whole"]


def stream_of(reply: Callable[[list[ModelMessage], AgentInfo], ModelResponse]) -> FunctionModel:
    """A model that streams what it replies."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for index, part in enumerate(reply(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            else:
                yield "done"

    return FunctionModel(stream_function=stream)


@pytest.mark.parametrize("emits", [False, True])
async def test_events_reach_the_handler_of_the_user_once(emits: bool) -> None:
    seen = list[str]()

    async def handle(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            seen.append(event.event_kind)

    script = Script(calls(("look", {"what": "it"})), "done")
    durability = StepwellDurability[None](event_stream_handler=handle, emit_updates=emits)
    office = Clerk(model=stream_of(script._reply), durability=durability).function(fails=1)
    with pytest.raises(HandlerFailed):
        await office.run("go", run_id="r")
    first = list(seen)
    result = await office.run(run_id="r")
    assert seen == first
    # Those of the model while they arrive, inside its step; each of the others in a step of its own.
    assert seen.count("function_tool_call") == seen.count("function_tool_result") == 1
    assert "part_start" in seen
    outside = [kind for kind in seen if not kind.startswith(("part_", "final_result"))]
    assert steps_of(result).count("clerk__event_stream_handler") == len(outside)


async def test_updates_alone_cost_no_steps() -> None:
    script = Script(calls(("look", {"what": "it"})), "done")
    clerk = Clerk(model=stream_of(script._reply), durability=StepwellDurability[None](emit_updates=True))
    assert steps_of(await clerk.function().run("go")) == [
        "clerk__model.request_stream",
        "clerk__function_toolset__desk.call_tool:look",
        "clerk__model.request_stream",
    ]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_instrumented_agent_counts_real_calls_only(streamed: bool) -> None:
    reader = InMemoryMetricReader()
    settings = InstrumentationSettings(
        meter_provider=MeterProvider([reader]), tracer_provider=TracerProvider(shutdown_on_exit=False)
    )
    replies = [calls(("look", {"what": str(n)})) for n in range(4)]
    script = Script(*replies, "done")
    clerk = Clerk(
        model=stream_of(script._reply) if streamed else script.model,
        capabilities=[Instrumentation(settings)],
        durability=StepwellDurability[None](emit_updates=streamed),
    )
    office = clerk.function(fails=2)
    for _ in range(2):
        with pytest.raises(HandlerFailed):
            await office.run("go", run_id="r")
    assert (await office.run(run_id="r")).get_outputs() == ["done"]
    data = reader.get_metrics_data()
    assert data is not None
    (usage,) = (
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "gen_ai.client.token.usage"
    )
    counts = {
        str(dict(point.attributes or {})["gen_ai.token.type"]): cast(Any, point).count
        for point in usage.data.data_points
    }
    assert len(script.given) == 5
    assert counts == {"input": 5, "output": 5}


def test_the_library_lists_what_was_used_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StepwellDurability[None]()
    monkeypatch.setattr(recalled_usage, "_LEDGER", "_moved_elsewhere")
    with pytest.warns(UserWarning, match="tokens of recalled requests are reported again"):
        StepwellDurability[None]()


async def test_limits_of_usage_count_what_was_recalled() -> None:
    clerk = Clerk(calls(("look", {"what": "it"})), calls(("look", {"what": "more"})), "done")
    failures = [1]

    @workflow(checkpoint_storage=InMemoryCheckpointStorage())
    async def office(task: str) -> int:
        first = await clerk.agent.run(task, usage_limits=UsageLimits(request_limit=3))
        if failures:
            raise RuntimeError(f"failure {failures.pop()}")
        return first.usage.requests

    with pytest.raises(HandlerFailed):
        await office.run("go", run_id="r")
    assert (await office.run(run_id="r")).get_outputs() == [3]


async def test_what_the_library_refuses_is_refused() -> None:
    clerk = Clerk("done")

    @workflow
    async def with_tools(task: str) -> str:
        return (await clerk.agent.run(task, toolsets=[FunctionToolset([clerk.look], id="late")])).output

    with pytest.raises(HandlerFailed, match="Stepwell"):
        await with_tools.run("go")
    with pytest.raises(UserError, match="unique `name`"):
        Agent(clerk.script.model, capabilities=[StepwellDurability[None]()])

    @workflow
    def in_a_thread(task: str) -> str:
        return clerk.agent.run_sync(task).output

    with pytest.raises(HandlerFailed, match="make the function async"):
        await in_a_thread.run("go")


class Shelf(FunctionToolset[None]):
    """A toolset that has to be entered and left."""

    def __init__(self, log: list[str]) -> None:
        super().__init__([self.fetch], id="shelf")
        self.log = log

    async def __aenter__(self) -> Shelf:
        self.log.append("enter")
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        self.log.append("leave")
        return None

    def fetch(self, what: str) -> str:
        self.log.append(f"fetch {what}")
        return what


@pytest.mark.parametrize("fails", [False, True])
async def test_what_is_entered_is_left_even_after_a_failure(fails: bool) -> None:
    log = list[str]()
    script = Script(calls(("fetch", {"what": "a"})), ConnectionError("down") if fails else "done")
    agent = Agent(
        script.model,
        name="clerk",
        toolsets=[DynamicToolset(lambda ctx: Shelf(log), id="dynamic")],
        capabilities=[StepwellDurability[None]()],
    )

    @workflow
    async def office(task: str) -> str:
        return (await agent.run(task)).output

    if fails:
        with pytest.raises(HandlerFailed, match="down"):
            await office.run("go")
    else:
        result = await office.run("go")
        assert {name for name in steps_of(result) if "dynamic" in name} == {
            "clerk__dynamic_toolset__dynamic.get_tools",
            "clerk__dynamic_toolset__dynamic.call_tool:fetch",
        }
    assert "fetch a" in log
    assert log.count("enter") == log.count("leave") > 0

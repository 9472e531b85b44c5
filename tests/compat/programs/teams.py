"""Programs: the five teams."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

import json
from typing import Any, Never

from tests.compat.scripted import Echo, agent, call


async def sequential(af, trace):
    one, two = agent("one", "first"), agent("two", "second answer")
    workflow = af.teams.SequentialBuilder(participants=[one, two]).build()
    trace.result(await workflow.run("hello"))
    trace.note(one.client.requests, two.client.requests)
    await trace.stream(
        af.teams.SequentialBuilder(participants=[agent("a", "x y"), agent("b", "z")]).build().run("hi", stream=True)
    )


async def sequential_options(af, trace):
    for options in (
        {"chain_only_agent_responses": True},
        {"output_from": "all"},
        {"intermediate_output_from": "all_other"},
        {"output_from": ["one"]},
        {"output_from": ["two"], "intermediate_output_from": ["one"]},
    ):
        one, two = agent("one", "first"), agent("two", "second")
        workflow = af.teams.SequentialBuilder(participants=[one, two], **options).build()
        trace.result(await workflow.run("hello"))
        trace.note(two.client.requests)


async def sequential_with_executors(af, trace):
    class Shorten(af.Executor):
        @af.handler
        async def shorten(self, messages: list[af.Message], ctx: af.WorkflowContext[list[af.Message]]) -> None:
            await ctx.send_message(messages[-1:])

        @af.handler
        async def of_agent(self, response: af.AgentExecutorResponse, ctx: af.WorkflowContext[list[af.Message]]) -> None:
            await ctx.send_message(response.full_conversation[-1:])

    two = agent("two", "second")
    workflow = af.teams.SequentialBuilder(participants=[agent("one", "first"), Shorten("shorten"), two]).build()
    trace.result(await workflow.run("hello"))
    trace.note(two.client.requests)


async def sequential_with_review(af, trace):
    one, two = agent("one", "draft", "better"), agent("two", "second")
    workflow = af.teams.SequentialBuilder(participants=[one, two]).with_request_info(agents=["one"]).build()
    result = await workflow.run("hello")
    trace.result(result)
    response = af.teams.AgentRequestInfoResponse
    for answer in (response.from_strings(["shorter"]), response.approve()):
        (event,) = result.get_request_info_events()
        trace.note(event.request_type, event.response_type)
        result = await workflow.run(responses={event.request_id: answer})
        trace.result(result)
    trace.note(one.client.requests, two.client.requests)


async def concurrent(af, trace):
    agents = [agent(name, f"{name} says") for name in ("one", "two", "three")]
    workflow = af.teams.ConcurrentBuilder(participants=agents).build()
    trace.result(await workflow.run("hello"))
    trace.note([each.client.requests for each in agents])


async def concurrent_with_an_aggregator(af, trace):
    def join(results):
        return " + ".join(result.agent_response.text for result in results)

    async def join_later(results, ctx):
        await ctx.yield_output(len(results))

    class Joins(af.Executor):
        @af.handler
        async def join(self, results: list[af.AgentExecutorResponse], ctx: af.WorkflowContext[Never, str]) -> None:
            await ctx.yield_output("/".join(result.executor_id for result in results))

    for aggregator in (join, join_later, Joins("joins")):
        builder = af.teams.ConcurrentBuilder(participants=[agent("one", "a"), agent("two", "b")])
        trace.result(await builder.with_aggregator(aggregator).build().run("hello"))


async def concurrent_outputs(af, trace):
    for options in ({"output_from": ["one"]}, {"output_from": "all"}, {"intermediate_output_from": ["two"]}):
        builder = af.teams.ConcurrentBuilder(participants=[agent("one", "a"), agent("two", "b")], **options)
        trace.result(await builder.build().run("hello"))


async def mistakes_of_teams(af, trace):
    teams = af.teams
    for mistake in (
        lambda: teams.SequentialBuilder(participants=[]),
        lambda: teams.SequentialBuilder(participants=["x"]),
        lambda: teams.ConcurrentBuilder(participants=[agent("a", "x"), agent("a", "y")]),
        lambda: teams.GroupChatBuilder(participants=[agent("a", "x")]).build(),
        lambda: teams.HandoffBuilder(participants=[agent("a", "x")]).build(),
        lambda: teams.MagenticBuilder(participants=[agent("a", "x")]).build(),
        lambda: teams.SequentialBuilder(participants=[agent("a", "x")], output_from=["b"]).build(),
    ):
        await trace.attempt(mistake)


async def group_chat(af, trace):
    turns = iter(["one", "two", "one"])
    agents = [agent("one", "first", "third"), agent("two", "second")]
    builder = af.teams.GroupChatBuilder(participants=agents, selection_func=lambda state: next(turns), max_rounds=3)
    await trace.stream(builder.build().run("hello", stream=True))
    trace.note([each.client.requests for each in agents])


async def group_chat_that_terminates(af, trace):
    agents = [agent("one", "first"), agent("two", "stop")]

    async def select(state):
        return list(state.participants)[state.current_round % 2]

    builder = af.teams.GroupChatBuilder(
        participants=agents, selection_func=select, termination_condition=lambda messages: messages[-1].text == "stop"
    )
    trace.result(await builder.build().run("hello"))


async def group_chat_with_an_orchestrator(af, trace):
    def decide(**decision):
        return json.dumps({"terminate": False, "reason": "r", "next_speaker": None, "final_message": None} | decision)

    boss = agent(
        "boss", decide(next_speaker="one"), decide(next_speaker="two"), decide(terminate=True, final_message="end")
    )
    agents = [agent("one", "first"), agent("two", "second")]
    workflow = af.teams.GroupChatBuilder(participants=agents, orchestrator_agent=boss).build()
    trace.result(await workflow.run("hello"))
    trace.note([each.client.requests for each in agents])


async def group_chat_in_checkpoints(af, trace):
    def build():
        agents = [agent("one", "first"), agent("two", "second")]
        builder = af.teams.GroupChatBuilder(
            participants=agents,
            selection_func=lambda state: ["one", "two"][state.current_round % 2],
            max_rounds=2,
            checkpoint_storage=storage,
        )
        return builder.build()

    storage = af.InMemoryCheckpointStorage()
    trace.note((await build().run("hello")).get_outputs())
    for checkpoint in sorted(await storage.list_checkpoints(workflow_name="GroupChat"), key=lambda c: c.timestamp)[:-1]:
        trace.note((await build().run(checkpoint_id=checkpoint.checkpoint_id)).get_outputs())


async def group_chat_with_an_executor(af, trace):
    class Speaks(af.Executor):
        @af.handler
        async def ask(self, request: af.teams.GroupChatRequestMessage, ctx: af.WorkflowContext[Any]) -> None:
            message = af.Message("assistant", ["spoken"], author_name=self.id)
            await ctx.send_message(af.AgentExecutorResponse(self.id, af.AgentResponse(messages=[message]), [message]))

        @af.handler
        async def hear(self, request: af.AgentExecutorRequest, ctx: af.WorkflowContext[Any]) -> None: ...

    builder = af.teams.GroupChatBuilder(
        participants=[agent("one", "first"), Speaks("speaks")],
        selection_func=lambda state: ["one", "speaks"][state.current_round % 2],
        max_rounds=2,
    )
    await trace.attempt(lambda: _traced(trace, builder.build().run("hello")))


async def _traced(trace, running):
    trace.result(await running)


def _handoff(af, *agents, **options):
    builder = af.teams.HandoffBuilder(name="handoff", participants=list(agents), **options)
    return builder.with_start_agent(agents[0])


def _specialist(name, *replies):
    return agent(name, *replies, require_per_service_call_history_persistence=True)


async def handoff(af, trace):
    triage = _specialist("triage", [call("handoff_to_refunds")], "again")
    refunds = _specialist("refunds", "how much?", "paid")
    workflow = _handoff(af, triage, refunds, termination_condition=lambda c: c[-1].text == "paid").build()
    result = await trace.stream(workflow.run("refund me", stream=True))
    (event,) = result.get_request_info_events()
    trace.note(event.data.agent_response.text)
    response = af.teams.HandoffAgentUserRequest.create_response("5")
    trace.result(await workflow.run(responses={event.request_id: response}))


async def handoff_that_is_ended(af, trace):
    workflow = _handoff(af, _specialist("one", "yes?"), _specialist("two", "no")).build()
    (event,) = (await workflow.run("hello")).get_request_info_events()
    response = af.teams.HandoffAgentUserRequest.terminate()
    trace.result(await workflow.run(responses={event.request_id: response}))


async def handoff_on_its_own(af, trace):
    one, two = _specialist("one", "thinking", "done"), _specialist("two", "no")
    builder = _handoff(af, one, two, termination_condition=lambda c: c[-1].text == "done")
    trace.result(await builder.with_autonomous_mode(agents=[one], turn_limits={"one": 3}).build().run("go"))
    trace.note(one.client.requests)


async def handoff_in_checkpoints(af, trace):
    def build():
        triage = _specialist("triage", [call("handoff_to_refunds")])
        return _handoff(af, triage, _specialist("refunds", "how much?", "paid"), checkpoint_storage=storage).build()

    storage = af.InMemoryCheckpointStorage()
    (event,) = (await build().run("refund me")).get_request_info_events()
    latest = await storage.get_latest(workflow_name="handoff")
    response = af.teams.HandoffAgentUserRequest.create_response("5")
    trace.note(
        (await build().run(checkpoint_id=latest.checkpoint_id, responses={event.request_id: response})).get_outputs()
    )


def _ledger(speaker, *, done=False):
    def item(answer):
        return {"reason": "r", "answer": answer}

    return json.dumps(
        {
            "is_request_satisfied": item(done),
            "is_in_loop": item(False),
            "is_progress_being_made": item(True),
            "next_speaker": item(speaker),
            "instruction_or_question": item(f"do it, {speaker}"),
        }
    )


def _magentic(af, **options):
    manager = agent("manager", "facts", "plan", _ledger("one"), _ledger("one", done=True), "final answer")
    worker = agent("one", "worked")
    builder = af.teams.MagenticBuilder(name="magentic", participants=[worker], manager_agent=manager, **options)
    return builder, manager, worker


async def magentic(af, trace):
    builder, manager, worker = _magentic(af)
    await trace.stream(builder.build().run("write", stream=True))
    trace.note(len(manager.client.requests), worker.client.requests)


async def magentic_with_plan_review(af, trace):
    builder, *_ = _magentic(af, enable_plan_review=True)
    workflow = builder.build()
    result = await workflow.run("write")
    trace.result(result)
    (event,) = result.get_request_info_events()
    trace.note(event.request_type, event.response_type, event.data.plan.text)
    response = af.teams.MagenticPlanReviewResponse.approve()
    trace.result(await workflow.run(responses={event.request_id: response}))


async def magentic_in_checkpoints(af, trace):
    storage = af.InMemoryCheckpointStorage()
    builder, *_ = _magentic(af, enable_plan_review=True, checkpoint_storage=storage)
    (event,) = (await builder.build().run("write")).get_request_info_events()
    latest = await storage.get_latest(workflow_name="magentic")
    manager = agent("manager", _ledger("one"), _ledger("one", done=True), "final answer")
    builder = af.teams.MagenticBuilder(
        name="magentic", participants=[agent("one", "worked")], manager_agent=manager, enable_plan_review=True,
        checkpoint_storage=storage,
    )  # fmt: skip
    response = af.teams.MagenticPlanReviewResponse.approve()
    resumed = await builder.build().run(checkpoint_id=latest.checkpoint_id, responses={event.request_id: response})
    trace.note(resumed.get_outputs())


async def teams_as_agents(af, trace):
    team = af.teams.SequentialBuilder(participants=[Echo(name="a"), Echo(name="b")]).build().as_agent("team")
    trace.note(await team.run("hello"))
    outer = af.teams.ConcurrentBuilder(participants=[team, agent("solo", "alone")]).build()
    trace.result(await outer.run("hello"))

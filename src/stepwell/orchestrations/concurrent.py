"""Side by side: every participant hears the same, and what they answer is brought together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never, Self

from stepwell.agents.messages import AgentExecutorRequest, AgentExecutorResponse, AgentResponse, Message, total
from stepwell.engine.threads import run_in_thread
from stepwell.errors import RunError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.edges import name_of
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler
from stepwell.orchestrations.participants import TeamEntry, takes
from stepwell.orchestrations.review import ReviewingTeamBuilder
from stepwell.workflows.builder import WorkflowBuilder

Result = AgentExecutorResponse | AgentResponse | Message | list[Message] | str
"""What participants may send: agents an AgentExecutorResponse, teams an AgentResponse, others also plain messages."""

Aggregate = Callable[..., Any]
"""Makes the result of the team: `(results)` or `(results, ctx)`, plain or async."""


class Dispatcher(TeamEntry):
    """Gives every participant the same messages."""

    def __init__(self, id: str, members: Mapping[str, Executor]) -> None:
        super().__init__(id)
        self.by_list = [id for id, member in members.items() if not takes(member, AgentExecutorRequest)]
        self.by_request = [id for id in members if id not in self.by_list]

    async def receive(self, messages: list[Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
        if not self.by_list:
            await ctx.send_message(AgentExecutorRequest(messages))
            return
        for id in self.by_request:
            await ctx.send_message(AgentExecutorRequest(messages), target_id=id)
        for id in self.by_list:
            await ctx.send_message(messages, target_id=id)


class Aggregator(Executor):
    """The last thing that each participant said, in the order of the participants, as one response."""

    @handler
    async def bring_together(self, results: list[Result], ctx: WorkflowContext[Never, AgentResponse]) -> None:
        messages = [message for result in results if (message := _last_message(result)) is not None]
        if not messages:
            raise RunError(
                f"nobody in the team said anything, so {self.id!r} in run {ctx.run_id!r} has nothing to bring "
                f"together: give the team an aggregator that knows what to do then: with_aggregator(...)",
                run_id=ctx.run_id,
            )
        responses = [response for result in results if (response := _response_of(result)) is not None]
        await ctx.yield_output(AgentResponse(messages, total(response.usage for response in responses)))


class CallbackAggregator(Executor):
    """A function that makes the result of the team. One that takes only the results is called once."""

    def __init__(self, function: Aggregate) -> None:
        name = name_of(function)
        super().__init__(name if name.isidentifier() else "aggregator")
        self.function = function
        self.takes_context = _count_parameters(function) == 2

    @handler
    async def bring_together(self, results: list[Any], ctx: WorkflowContext[Never, Any]) -> None:
        output = await (self._call_with_context(results, ctx) if self.takes_context else self._call_once(results, ctx))
        if output is not None:
            await ctx.yield_output(output)

    async def _call_once(self, results: list[Any], ctx: WorkflowContext[Never, Any]) -> Any:
        return await ctx.step("aggregate", self.function, results)

    async def _call_with_context(self, results: list[Any], ctx: WorkflowContext[Never, Any]) -> Any:
        """A function that has the context says by itself what is to be done once."""
        if inspect.iscoroutinefunction(self.function):
            return await self.function(results, ctx)
        output = await run_in_thread(self.function, results, ctx)
        return await output if inspect.isawaitable(output) else output


class ConcurrentBuilder(ReviewingTeamBuilder):
    """Builds a team whose participants work side by side on the same messages.

    An aggregator gets what they answered as one list, in the order of the participants. Without one of your own, the
    output is one AgentResponse with the last message of each. A participant that is no agent takes
    `AgentExecutorRequest` or `list[Message]`, and sends one answer.
    """

    kind = "Concurrent"
    _aggregators: tuple[Executor | Aggregate, ...] = ()

    def with_aggregator(self, aggregator: Executor | Aggregate) -> Self:
        """Bring the answers together so: an Executor that takes the list of them, or a function of it.

        What a function returns, unless it is None, is the output; a plain function runs in a thread.
        """
        self._aggregators = (*self._aggregators, aggregator)
        return self

    def _find_problems(self, members: Mapping[str, Executor]) -> Iterable[str]:
        yield from super()._find_problems(members)
        if len(members) == 1:
            yield f"a concurrent team needs at least two participants, not only {next(iter(members))!r}"
        for id, member in members.items():
            if not takes(member, AgentExecutorRequest) and not takes(member, list[Message]):
                yield f"{id!r} takes neither AgentExecutorRequest nor list[Message]: nothing could be said to it"
        if len(self._aggregators) > 1:
            yield f"with_aggregator was called {len(self._aggregators)} times: a team has one aggregator"
        for aggregator in self._aggregators:
            if not isinstance(aggregator, Executor) and (not callable(aggregator) or isinstance(aggregator, type)):
                yield (
                    f"{aggregator!r:.80} cannot bring answers together: give an Executor, or a function of the results"
                )
            elif not isinstance(aggregator, Executor) and _count_parameters(aggregator) not in (1, 2):
                yield f"the aggregator {name_of(aggregator)!r} must take (results) or (results, ctx)"

    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        team = self._add_reviews(members)
        aggregator = self._make_aggregator()
        dispatcher = Dispatcher("dispatcher", team)
        builder = self._start_builder(dispatcher, [aggregator.id])
        builder.add_fan_out_edges(dispatcher, list(team.values()))
        return builder.add_fan_in_edges(list(team.values()), aggregator)

    def _make_aggregator(self) -> Executor:
        if not self._aggregators:
            return Aggregator("aggregator")
        (aggregator,) = self._aggregators
        return aggregator if isinstance(aggregator, Executor) else CallbackAggregator(aggregator)


def _response_of(result: Result) -> AgentResponse | None:
    if isinstance(result, AgentExecutorResponse):
        return result.agent_response
    return result if isinstance(result, AgentResponse) else None


def _last_message(result: Result) -> Message | None:
    if isinstance(result, str):
        return Message("assistant", result)
    response = _response_of(result)
    messages = response.messages if response is not None else result
    all_messages = [messages] if isinstance(messages, Message) else list(messages)  # type: ignore[arg-type]
    answers = [message for message in all_messages if message.role == "assistant"]
    return answers[-1] if answers else None


def _count_parameters(function: Aggregate) -> int:
    """How many parameters a call has to fill."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(1 for parameter in parameters if parameter.kind in kinds and parameter.default is parameter.empty)

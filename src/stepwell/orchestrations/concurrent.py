"""Side by side: every participant hears the same, and what they answer is brought together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Never, Self

from stepwell.agents.messages import AgentExecutorRequest, AgentExecutorResponse, AgentResponse, Message, total
from stepwell.engine.threads import in_thread
from stepwell.errors import RunError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.edges import name_of
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler
from stepwell.orchestrations.participants import DEFAULT_TEAM_ITERATIONS, Opening, Participant, takes
from stepwell.orchestrations.review import ReviewingTeamBuilder
from stepwell.workflows.builder import WorkflowBuilder
from stepwell.workflows.storage_options import StorageLike

Result = AgentExecutorResponse | AgentResponse | Message | list[Message] | str
"""What participants may send: agents an AgentExecutorResponse, teams an AgentResponse, others also plain messages."""

Aggregate = Callable[..., Any]
"""Makes the result of the team: `(results)` or `(results, ctx)`, plain or async."""


class Dispatcher(Opening):
    """Gives every participant the same messages."""

    def __init__(self, id: str, members: Mapping[str, Executor]) -> None:
        super().__init__(id)
        self.by_list = [id for id, one in members.items() if not takes(one, AgentExecutorRequest)]
        self.by_request = [id for id in members if id not in self.by_list]

    async def opened(self, messages: list[Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
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
        said = [message for result in results if (message := _last_said(result)) is not None]
        if not said:
            raise RunError(
                f"nobody in the team said anything, so {self.id!r} in run {ctx.run_id!r} has nothing to bring "
                f"together: give the team an aggregator that knows what to do then: with_aggregator(...)",
                run_id=ctx.run_id,
            )
        responses = [response for result in results if (response := _response(result)) is not None]
        await ctx.yield_output(AgentResponse(said, total(response.usage for response in responses)))


class CallbackAggregator(Executor):
    """A function that makes the result of the team. One that takes only the results is called once."""

    def __init__(self, function: Aggregate) -> None:
        name = name_of(function)
        super().__init__(name if name.isidentifier() else "aggregator")
        self.function = function
        self.takes_context = _parameters(function) == 2

    @handler
    async def bring_together(self, results: list[Any], ctx: WorkflowContext[Never, Any]) -> None:
        made = await (self._with_context(results, ctx) if self.takes_context else self._once(results, ctx))
        if made is not None:
            await ctx.yield_output(made)

    async def _once(self, results: list[Any], ctx: WorkflowContext[Never, Any]) -> Any:
        return await ctx.step("aggregate", self.function, results)

    async def _with_context(self, results: list[Any], ctx: WorkflowContext[Never, Any]) -> Any:
        """A function that has the context says by itself what is to be done once."""
        if inspect.iscoroutinefunction(self.function):
            return await self.function(results, ctx)
        made = await in_thread(self.function, results, ctx)
        return await made if inspect.isawaitable(made) else made


class ConcurrentBuilder(ReviewingTeamBuilder):
    """Builds a team whose participants work side by side on the same messages.

    An aggregator gets what they answered as one list, in the order of the participants. Without one of your own, the
    output is one AgentResponse with the last message of each. A participant that is no agent takes
    `AgentExecutorRequest` or `list[Message]`, and sends one answer.
    """

    kind = "Concurrent"

    def __init__(
        self,
        *,
        participants: Sequence[Participant] = (),
        name: str | None = None,
        description: str | None = None,
        checkpoint_storage: StorageLike | None = None,
        output_from: Sequence[Participant] | Literal["all"] | None = None,
        intermediate_output_from: Sequence[Participant] | Literal["all", "all_other"] | None = None,
        max_iterations: int = DEFAULT_TEAM_ITERATIONS,
    ) -> None:
        super().__init__(
            participants=participants,
            name=name,
            description=description,
            checkpoint_storage=checkpoint_storage,
            output_from=output_from,
            intermediate_output_from=intermediate_output_from,
            max_iterations=max_iterations,
        )
        self._aggregators: list[Executor | Aggregate] = []

    def with_aggregator(self, aggregator: Executor | Aggregate) -> Self:
        """Bring the answers together so: an Executor that takes the list of them, or a function of it.

        What a function returns, unless it is None, is the output; a plain function runs in a thread.
        """
        self._aggregators.append(aggregator)
        return self

    def _wrong(self, members: Mapping[str, Executor]) -> Iterable[str]:
        yield from super()._wrong(members)
        if len(members) == 1:
            yield f"a concurrent team needs at least two participants, not only {next(iter(members))!r}"
        for id, one in members.items():
            if not takes(one, AgentExecutorRequest) and not takes(one, list[Message]):
                yield f"{id!r} takes neither AgentExecutorRequest nor list[Message]: nothing could be said to it"
        if len(self._aggregators) > 1:
            yield f"with_aggregator was called {len(self._aggregators)} times: a team has one aggregator"
        for given in self._aggregators:
            if not isinstance(given, Executor) and (not callable(given) or isinstance(given, type)):
                yield f"{given!r:.80} cannot bring answers together: give an Executor, or a function of the results"
            elif not isinstance(given, Executor) and _parameters(given) not in (1, 2):
                yield f"the aggregator {name_of(given)!r} must take (results) or (results, ctx)"

    def _wired(self, members: dict[str, Executor]) -> WorkflowBuilder:
        team = self._under_review(members)
        aggregator = self._aggregator()
        dispatcher = Dispatcher("dispatcher", team)
        builder = self._begin(dispatcher, [aggregator.id])
        builder.add_fan_out_edges(dispatcher, list(team.values()))
        return builder.add_fan_in_edges(list(team.values()), aggregator)

    def _aggregator(self) -> Executor:
        if not self._aggregators:
            return Aggregator("aggregator")
        (given,) = self._aggregators
        return given if isinstance(given, Executor) else CallbackAggregator(given)


def _response(result: Result) -> AgentResponse | None:
    if isinstance(result, AgentExecutorResponse):
        return result.agent_response
    return result if isinstance(result, AgentResponse) else None


def _last_said(result: Result) -> Message | None:
    if isinstance(result, str):
        return Message("assistant", result)
    response = _response(result)
    messages = response.messages if response is not None else result
    several = [messages] if isinstance(messages, Message) else list(messages)  # type: ignore[arg-type]
    said = [message for message in several if message.role == "assistant"]
    return said[-1] if said else None


def _parameters(function: Aggregate) -> int:
    """How many parameters a call has to fill."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    several = inspect.signature(function).parameters.values()
    return sum(1 for one in several if one.kind in kinds and one.default is one.empty)

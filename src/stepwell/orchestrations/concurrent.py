"""Concurrent teams: all participants receive the same messages, and their answers are aggregated."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never, Self

from stepwell.agents.messages import AgentExecutorRequest, AgentExecutorResponse, AgentResponse, Message, total
from stepwell.engine.handler.threads import run_in_thread
from stepwell.errors import RunError
from stepwell.graph.context import WorkflowContext
from stepwell.graph.edges import name_of
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler
from stepwell.orchestrations.participants import Check, TeamEntry, takes
from stepwell.orchestrations.review import ReviewingTeamBuilder
from stepwell.workflows.builder import WorkflowBuilder

Result = AgentExecutorResponse | AgentResponse | Message | list[Message] | str
"""What participants may send: agents an AgentExecutorResponse, teams an AgentResponse, others plain messages too."""

Aggregate = Callable[..., Any]
"""Computes the result of the team from `(results)` or `(results, ctx)`; plain or async."""


class Dispatcher(TeamEntry):
    """Sends the same messages to every participant."""

    def __init__(self, members: Mapping[str, Executor]) -> None:
        super().__init__("dispatcher")
        self.by_list = [id for id, member in members.items() if not takes(member, AgentExecutorRequest)]
        self.by_request = [id for id in members if id not in self.by_list]

    async def receive(self, messages: list[Message], ctx: WorkflowContext[Any, AgentResponse]) -> None:
        # Usually all participants take requests, and one message over the fan-out reaches them all.
        if not self.by_list:
            await ctx.send_message(AgentExecutorRequest(messages))
            return
        for id in self.by_request:
            await ctx.send_message(AgentExecutorRequest(messages), target_id=id)
        for id in self.by_list:
            await ctx.send_message(messages, target_id=id)


class Aggregator(Executor):
    """Combines the last message of each participant, in their order, into one response."""

    @handler
    async def bring_together(self, results: list[Result], ctx: WorkflowContext[Never, AgentResponse]) -> None:
        contents = [
            result.agent_response if isinstance(result, AgentExecutorResponse) else result for result in results
        ]
        messages = [message for content in contents if (message := _last_message(content)) is not None]
        if not messages:
            raise RunError(
                f"no participant answered, so {self.id!r} in run {ctx.run_id!r} has nothing to aggregate; handle that "
                f"case with your own aggregator: with_aggregator(...)",
                run_id=ctx.run_id,
            )
        usage = total(content.usage for content in contents if isinstance(content, AgentResponse))
        await ctx.yield_output(AgentResponse(messages, usage))


class CallbackAggregator(Executor):
    """Calls a function that computes the result of the team.

    A function that takes only the results is a step, called once; one that also takes the context
    decides itself what is a step.
    """

    def __init__(self, function: Aggregate) -> None:
        # A lambda has no usable name.
        name = name_of(function)
        super().__init__(name if name.isidentifier() else "aggregator")
        self.function = function
        self.takes_context = _count_parameters(function) == 2

    @handler
    async def bring_together(self, results: list[Any], ctx: WorkflowContext[Never, Any]) -> None:
        if not self.takes_context:
            output = await ctx.step("aggregate", self.function, results)
        elif inspect.iscoroutinefunction(self.function):
            output = await self.function(results, ctx)
        else:
            output = await run_in_thread(self.function, results, ctx)
            # A plain callable may still return an awaitable: a partial, or an object with async __call__.
            output = await output if inspect.isawaitable(output) else output
        if output is not None:
            await ctx.yield_output(output)


class ConcurrentBuilder(ReviewingTeamBuilder):
    """Builds a team whose participants work concurrently on the same messages.

    An aggregator receives their answers as a list, in the order of the participants. The default one
    yields one AgentResponse with the last message of each. A participant that is not an agent takes
    `AgentExecutorRequest` or `list[Message]`, and sends one answer.
    """

    kind = "Concurrent"
    _aggregators: tuple[Executor | Aggregate, ...] = ()

    def with_aggregator(self, aggregator: Executor | Aggregate) -> Self:
        """Aggregate the answers with an Executor that takes the list of them, or with a function.

        The function's return value, unless it is None, is the output; a plain function runs in a thread.
        """
        # All of them are kept, so that `build` can report a second call as a problem.
        self._aggregators = (*self._aggregators, aggregator)
        return self

    def _check(self, members: Mapping[str, Executor]) -> Iterable[Check]:
        yield from super()._check(members)
        yield len(members) == 1, f"a concurrent team needs at least two participants, not only {', '.join(members)!r}"
        for id, member in members.items():
            yield (
                not takes(member, AgentExecutorRequest) and not takes(member, list[Message]),
                f"{id!r} accepts neither AgentExecutorRequest nor list[Message], so it cannot receive the input",
            )
        count = len(self._aggregators)
        yield count > 1, f"with_aggregator was called {count} times: a team has only one aggregator"
        for aggregator in self._aggregators:
            if isinstance(aggregator, Executor):
                continue
            if not callable(aggregator) or isinstance(aggregator, type):
                yield (
                    True,
                    f"{aggregator!r:.80} cannot be an aggregator: pass an Executor, or a function of the results",
                )
            elif _count_parameters(aggregator) not in (1, 2):
                yield True, f"the aggregator {name_of(aggregator)!r} must take (results) or (results, ctx)"

    def _wire(self, members: dict[str, Executor]) -> WorkflowBuilder:
        team = self._add_reviews(members)
        aggregator = self._aggregators[0] if self._aggregators else Aggregator("aggregator")
        if not isinstance(aggregator, Executor):
            aggregator = CallbackAggregator(aggregator)
        dispatcher = Dispatcher(team)
        builder = self._start_builder(dispatcher, [aggregator.id], result=aggregator.id)
        builder.add_fan_out_edges(dispatcher, list(team.values()))
        return builder.add_fan_in_edges(list(team.values()), aggregator)


def _last_message(content: AgentResponse | Message | list[Message] | str) -> Message | None:
    if isinstance(content, str):
        return Message("assistant", content)
    messages = content.messages if isinstance(content, AgentResponse) else content
    answers = [
        message
        for message in ([messages] if isinstance(messages, Message) else messages)
        if message.role == "assistant"
    ]
    return answers[-1] if answers else None


def _count_parameters(function: Aggregate) -> int:
    """Count the positional parameters that a call must fill."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(1 for parameter in parameters if parameter.kind in kinds and parameter.default is parameter.empty)

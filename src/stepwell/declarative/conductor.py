"""The conductor: hears what came of each node, and says which run next. What follows from what is in `deciding`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from stepwell.declarative.conditions.evaluation import evaluate_all
from stepwell.declarative.definition import Definition
from stepwell.declarative.errors import LoopLimit, WorkflowTimeout
from stepwell.declarative.messages import Begin, Decided, Done, Go, Outcome
from stepwell.declarative.schedule import Deciding, Decision, Layer, Plan, Stand, TooManyLoops, last_of
from stepwell.engine.handler_context import HandlerContext
from stepwell.errors import GraphChanged
from stepwell.graph.context import WorkflowContext
from stepwell.graph.executor import Executor
from stepwell.graph.handler import handler
from stepwell.model.payload import Payload
from stepwell.storage import clock

CONDUCTOR = "conductor"
_VALUES = "values/"
_NODES = "nodes/"


@dataclass(frozen=True, slots=True)
class Begun:
    """When a run began, in which conversation, and how far it has come."""

    session: str
    at: str = field(compare=False)
    ways: tuple[str, ...] = ()  # the edges it began with, by key
    layer: int = 0
    place: str = field(default="", compare=False)  # the superstep of the layer
    layers: tuple[Layer, ...] = ()  # those of which somebody still runs


ConductorContext = WorkflowContext[Go | Decided, Outcome]


class Values(Mapping[str, Any]):
    """The values of a run, by their keys, read from its state one by one."""

    def __init__(self, ctx: WorkflowContext[Any, Any]) -> None:
        assert isinstance(ctx, HandlerContext)
        self._ctx = ctx

    def __getitem__(self, key: str) -> Any:
        if _VALUES + key not in self._ctx.state_keys():
            raise KeyError(key)
        return self._ctx.get_state(_VALUES + key)

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(_VALUES) for key in self._ctx.state_keys() if key.startswith(_VALUES))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def check_ways(ways: Sequence[str], plan: Plan, run_id: str) -> None:
    """Raises GraphChanged if a run was begun with other edges: where it is would mean something else."""
    if changed := _other_ways(ways, plan):
        raise GraphChanged(
            f"run {run_id!r} was begun with other edges: {'; '.join(changed)}. "
            f"Resume it with AgentWorkflow.of_run(...), which has those it began with",
            differences=changed,
        )


def _other_ways(ways: Sequence[str], plan: Plan) -> list[str]:
    now = [way.key for way in plan.ways]
    gone = [f"edge {key!r} is gone" for key in ways if key not in now]
    new = [f"edge {key!r} is new" for key in now if key not in ways]
    return gone + new if gone or new or list(ways) == now else ["the order of the edges is another"]


class Conductor(Executor):
    """Keeps where each node is in the state of the run, a key for each, and lets those run whose turn it is."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(CONDUCTOR)
        self.plan = plan

    def clone(self) -> Conductor:
        twin = super().clone()
        assert isinstance(twin, Conductor)
        twin.plan = self.plan  # what it means is the same for every run
        return twin

    def objections(self, state: Mapping[str, Payload]) -> list[str]:
        return _other_ways(state["begun"].open().ways, self.plan) if "begun" in state else []

    @handler
    async def begin(self, message: Begin, ctx: ConductorContext) -> None:
        ways = tuple(way.key for way in self.plan.ways)
        ctx.set_state("definition", message.definition)
        ctx.set_state("begun", Begun(message.session, clock.now().isoformat(), ways))
        ctx.set_state(_VALUES + "input", message.input)
        deciding = self._deciding(ctx)
        await self._follow(deciding.begin(), deciding, ctx)

    @handler
    async def done(self, message: Done, ctx: ConductorContext) -> None:
        check_ways(ctx.get_state("begun").ways, self.plan, ctx.run_id)
        self._check_time(ctx)
        deciding = self._deciding(ctx)
        owner = deciding.stands[message.node].instead_of or message.node
        try:
            match message.outcome:
                case "succeeded":
                    holding = await evaluate_all(*deciding.conditions_after(message.node, message.outputs))
                    decision = deciding.finished(message.node, message.outputs, holding)
                case "failed":
                    decision = deciding.gave_up(message.node, message.reason)
                case "denied":
                    decision = deciding.denied(message.node, message.reason)
        except TooManyLoops as error:
            raise LoopLimit(f"run {ctx.run_id!r} of {self._name!r}: {error}", run_id=ctx.run_id) from error
        for key, value in deciding.given.get(owner, {}).items():
            ctx.set_state(_VALUES + key, value)
        await self._follow(decision, deciding, ctx)

    @handler
    async def decided(self, message: Decided, ctx: ConductorContext) -> None:
        """It was told when it was sent; nothing follows from it."""

    @property
    def _name(self) -> str:
        return self.plan.definition.name

    def _deciding(self, ctx: WorkflowContext[Any, Any]) -> Deciding:
        stands = {id: ctx.get_state(_NODES + id, Stand()) for id in self.plan.ids}
        return Deciding(self.plan, stands, dict(Values(ctx)))

    async def _follow(self, decision: Decision, deciding: Deciding, ctx: ConductorContext) -> None:
        layer, ended = self._layers(decision, deciding, ctx)
        decision = replace(decision, ended=ended)
        for id, stand in deciding.stands.items():
            if stand != ctx.get_state(_NODES + id, Stand()):
                ctx.set_state(_NODES + id, stand)
        for number, id in enumerate(decision.start):
            stand = deciding.stands[id]
            decided = decision if number == 0 else None
            await ctx.send_message(Go(id, stand.runs, layer, stand.upstream, stand.instead_of, decided), target_id=id)
        if decision.done:
            await ctx.yield_output(self._outcome(decision, deciding, ctx))
        elif decision and not decision.start:
            await ctx.send_message(Decided(decision), target_id=CONDUCTOR)

    def _layers(
        self, decision: Decision, deciding: Deciding, ctx: WorkflowContext[Any, Any]
    ) -> tuple[int, tuple[Layer, ...]]:
        """The layer of those that begin in this superstep, and the layers that ended."""
        assert isinstance(ctx, HandlerContext)
        begun: Begun = ctx.get_state("begun")
        place, now, stands = ctx.delivery.id.partition(".")[0], begun, deciding.stands
        if decision.start:
            if place != begun.place:
                now = replace(now, layer=now.layer + 1, place=place, layers=(*now.layers, Layer(now.layer + 1, ())))
            *before, last = now.layers
            now = replace(now, layers=(*before, replace(last, nodes=(*last.nodes, *decision.start))))
            for id in decision.start:
                stands[id] = replace(stands[id], layer=now.layer)
        running = {stand.layer for stand in stands.values() if stand.status == "running"}
        ended = tuple(layer for layer in now.layers if layer.number not in running)
        now = replace(now, layers=tuple(layer for layer in now.layers if layer.number in running))
        if now != begun:
            ctx.set_state("begun", now)
        return now.layer, ended

    def _outcome(self, decision: Decision, deciding: Deciding, ctx: WorkflowContext[Any, Any]) -> Outcome:
        stands = deciding.stands
        last = {id: stands[id] for id in last_of(self.plan, stands)}
        outputs = {id: stand.outputs.get(self.plan.definition.node(id).gives) for id, stand in last.items()}
        begun: Begun = ctx.get_state("begun")
        return Outcome(
            next(iter(outputs.values())) if len(outputs) == 1 else outputs,
            dict(Values(ctx)),
            tuple(id for id, stand in stands.items() if stand.status == "succeeded"),
            {id: stand.reason for id, stand in stands.items() if stand.status == "failed"},
            {id: stand.reason for id, stand in stands.items() if stand.status == "skipped"},
            decision,
            (clock.now() - datetime.fromisoformat(begun.at)).total_seconds(),
        )

    def _check_time(self, ctx: WorkflowContext[Any, Any]) -> None:
        left = time_left(self.plan.definition, ctx)
        if left is not None and left < 0:
            raise took_too_long(self.plan, ctx)


def time_left(definition: Definition, ctx: WorkflowContext[Any, Any]) -> float | None:
    """How many seconds a run may still take; None: as long as it wants."""
    if definition.timeout is None:
        return None
    begun: Begun = ctx.get_state("begun")
    return definition.timeout - (clock.now() - datetime.fromisoformat(begun.at)).total_seconds()


def took_too_long(plan: Plan, ctx: WorkflowContext[Any, Any]) -> WorkflowTimeout:
    """The error of a run that may take no longer. Says what still ran."""
    running = [id for id in plan.ids if ctx.get_state(_NODES + id, Stand()).status == "running"]
    return WorkflowTimeout(
        f"run {ctx.run_id!r} of {plan.definition.name!r} took longer than {plan.definition.timeout:g} s; running: "
        f"{', '.join(running)}; to go on, resume it with a longer one: with_timeout(...)",
        run_id=ctx.run_id,
    )

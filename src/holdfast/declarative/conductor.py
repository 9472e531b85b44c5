"""The conductor: hears what came of each node, and says which run next. What follows from what is in `deciding`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ..durable import clock
from ..graph.context import WorkflowContext
from ..graph.executor import Executor
from ..graph.handlers import handler
from ..runtime.context import HandlerContext
from .deciding import Deciding, Decision, Plan, Stand, TooManyLoops
from .definition import Definition
from .errors import LoopLimit, WorkflowTimeout
from .messages import Begin, Done, Go, Outcome

CONDUCTOR = "conductor"
_VALUES = "values/"
_NODES = "nodes/"


@dataclass(frozen=True, slots=True)
class Begun:
    """When a run began, in which conversation, and how far it has come."""

    session: str
    at: str = field(compare=False)
    layer: int = 0
    place: str = field(default="", compare=False)  # the superstep of the layer


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


class Conductor(Executor):
    """Keeps where each node is in the state of the run, a key for each, and lets those run whose turn it is."""

    def __init__(self, definition: Definition) -> None:
        super().__init__(CONDUCTOR)
        self.plan = Plan(definition)

    @handler
    async def begin(self, message: Begin, ctx: WorkflowContext[Go, Outcome]) -> None:
        ctx.set_state("definition", message.definition)
        ctx.set_state("begun", Begun(message.session, clock.now().isoformat()))
        ctx.set_state(_VALUES + "input", message.input)
        deciding = self._deciding(ctx)
        await self._follow(deciding.begin(), deciding, ctx)

    @handler
    async def done(self, message: Done, ctx: WorkflowContext[Go, Outcome]) -> None:
        self._check_time(ctx)
        deciding = self._deciding(ctx)
        owner = deciding.stands[message.node].instead_of or message.node
        try:
            match message.outcome:
                case "succeeded":
                    decision = deciding.finished(message.node, message.outputs)
                case "failed":
                    decision = deciding.gave_up(message.node, message.reason)
                case "denied":
                    decision = deciding.denied(message.node, message.reason)
        except TooManyLoops as error:
            raise LoopLimit(f"run {ctx.run_id!r} of {self._name!r}: {error}", run_id=ctx.run_id) from error
        for key, value in deciding.given.get(owner, {}).items():
            ctx.set_state(_VALUES + key, value)
        await self._follow(decision, deciding, ctx)

    @property
    def _name(self) -> str:
        return self.plan.definition.name

    def _deciding(self, ctx: WorkflowContext[Any, Any]) -> Deciding:
        stands = {id: ctx.get_state(_NODES + id, Stand()) for id in self.plan.ids}
        return Deciding(self.plan, stands, dict(Values(ctx)))

    async def _follow(self, decision: Decision, deciding: Deciding, ctx: WorkflowContext[Go, Outcome]) -> None:
        for id, stand in deciding.stands.items():
            if stand != ctx.get_state(_NODES + id, Stand()):
                ctx.set_state(_NODES + id, stand)
        layer = self._layer(ctx, begins=bool(decision.start))
        for number, id in enumerate(decision.start):
            stand = deciding.stands[id]
            decided = decision if number == 0 else None
            await ctx.send_message(Go(id, stand.runs, layer, stand.upstream, stand.instead_of, decided), target_id=id)
        if decision.done:
            await ctx.yield_output(self._outcome(decision, deciding, layer, ctx))

    def _layer(self, ctx: WorkflowContext[Any, Any], *, begins: bool) -> int:
        """The number of the layer that begins in this superstep; or of the last one."""
        assert isinstance(ctx, HandlerContext)
        begun: Begun = ctx.get_state("begun")
        place = ctx.delivery.id.partition(".")[0]
        if begins and place != begun.place:
            begun = replace(begun, layer=begun.layer + 1, place=place)
            ctx.set_state("begun", begun)
        return begun.layer

    def _outcome(self, decision: Decision, deciding: Deciding, layer: int, ctx: WorkflowContext[Any, Any]) -> Outcome:
        stands = deciding.stands
        last = {id: stands[id] for id in self.plan.exits if stands[id].status == "succeeded"}
        outputs = {id: stand.outputs.get(self.plan.definition.node(id).gives) for id, stand in last.items()}
        begun: Begun = ctx.get_state("begun")
        return Outcome(
            next(iter(outputs.values())) if len(outputs) == 1 else outputs,
            dict(Values(ctx)),
            tuple(id for id, stand in stands.items() if stand.status == "succeeded"),
            {id: stand.reason for id, stand in stands.items() if stand.status == "failed"},
            {id: stand.reason for id, stand in stands.items() if stand.status == "skipped"},
            decision,
            layer,
            (clock.now() - datetime.fromisoformat(begun.at)).total_seconds(),
        )

    def _check_time(self, ctx: WorkflowContext[Any, Any]) -> None:
        limit, begun = self.plan.definition.timeout, ctx.get_state("begun")
        if limit is not None and (clock.now() - datetime.fromisoformat(begun.at)).total_seconds() > limit:
            running = [id for id in self.plan.ids if ctx.get_state(_NODES + id, Stand()).status == "running"]
            raise WorkflowTimeout(
                f"run {ctx.run_id!r} of {self._name!r} took longer than {limit:g} s; running: {', '.join(running)}; "
                f"raise its timeout to go on",
                run_id=ctx.run_id,
            )

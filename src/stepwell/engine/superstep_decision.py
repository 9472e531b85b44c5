"""Decides what a superstep leads to: the next commit, and whether the run continues."""

from __future__ import annotations

from stepwell import kernel
from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.edge_conditions import choose_routes
from stepwell.engine.failures import Failure, make_failure
from stepwell.engine.open_run import new_stamp
from stepwell.engine.superstep import Superstep
from stepwell.errors import DurabilityError, StepwellError, SuperstepLimit
from stepwell.kernel import CommitDecision
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Stamp
from stepwell.model.message import Plan
from stepwell.model.payload import Pack


async def decide(
    definition: WorkflowDefinition, superstep: Superstep, at: Checkpoint, plan: Plan, pack: Pack, cancelled: bool
) -> CommitDecision:
    """Evaluate conditions and merge outcomes into a commit; store the outcomes of a superstep that cannot commit."""
    stamp = new_stamp(at.run_id, at.header.epoch, at.number + 1)
    if cancelled:
        await superstep.persist()
        return CommitDecision(kernel.cancel(at, stamp), None)
    errors = [superstep.failures[d.id] for d in plan.deliveries if d.id in superstep.failures]
    if at.since_input >= definition.max_iterations:
        errors = [_failure(at, _limit_error(at, plan, superstep), superstep)]
    if not errors and superstep.parked:
        await superstep.persist()
        return CommitDecision(kernel.park(at, min(superstep.parked.values()), stamp), None)
    if not errors:
        try:
            return await _merge(definition, superstep, at, plan, pack, stamp)
        except DurabilityError:
            raise
        except StepwellError as error:
            errors = [_failure(at, error, superstep)]
    await superstep.persist()
    return _fail(at, errors, stamp)


async def _merge(
    definition: WorkflowDefinition, superstep: Superstep, at: Checkpoint, plan: Plan, pack: Pack, stamp: Stamp
) -> CommitDecision:
    graph = definition.graph
    routes = {id: await choose_routes(graph, at.run_id, outcome) for id, outcome in superstep.outcomes.items()}
    return kernel.merge(graph, at, plan, outcomes=superstep.outcomes, routes=routes, pack=pack, stamp=stamp)


def _fail(at: Checkpoint, errors: list[Failure], stamp: Stamp) -> CommitDecision:
    for other in errors[1:]:
        errors[0].error.add_note(f"also: {other.error}")
    return CommitDecision(kernel.fail(at, tuple(failure.details for failure in errors), stamp), None, errors[0].error)


def _failure(at: Checkpoint, error: StepwellError, superstep: Superstep) -> Failure:
    return make_failure(at.run_id, None, error, stored=superstep.is_stored)


def _limit_error(at: Checkpoint, plan: Plan, superstep: Superstep) -> SuperstepLimit:
    still = ", ".join(dict.fromkeys(repr(delivery.executor) for delivery in plan.deliveries))
    return SuperstepLimit(
        f"run {at.run_id!r} took {at.since_input} supersteps since its last input and has not finished: {still} "
        f"would run next; build the workflow with a larger max_iterations and "
        f"{'resume' if superstep.is_stored else 'run it again'}",
        run_id=at.run_id,
    )

"""Whether this code can go on with a stored run, and the run as it goes on with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.definition import WorkflowDefinition
from stepwell.engine.signals import decode_pending
from stepwell.errors import CheckpointCorrupt, GraphChanged
from stepwell.graph.edges import fan_in_of
from stepwell.graph.graph import describe_differences
from stepwell.graph.migration import ChangeFanIn, Migration, describe_step, follow_renames
from stepwell.model.superstep import Checkpoint, RecalledLog
from stepwell.storage.response_types import schema_of, type_words

_HINT = "Go on with the code that has what is missing, or say in a Migration what becomes of it"


class CompatibleRun(msgspec.Struct, frozen=True):
    """A stored run as this code goes on with it."""

    at: Checkpoint
    log: RecalledLog
    words: tuple[str, ...] = ()  # what is not as it was stored; empty: everything is
    migrations: tuple[Migration, ...] = ()  # those that were needed


def is_changed(definition: WorkflowDefinition, at: Checkpoint) -> bool:
    """Whether a run was stored by another graph, or by another version of the workflow."""
    return (at.header.signature, at.header.version) != (definition.signature, definition.version)


def make_compatible(
    definition: WorkflowDefinition,
    at: Checkpoint,
    log: RecalledLog,
    signals: Sequence[tuple[str, bytes]] = (),
    *,
    afresh: bool = False,
) -> CompatibleRun:
    """The run as this code goes on with it, migrated if need be; nothing is stored.

    `signals` are what came for it and are not taken in. `afresh`: it goes on from there as another run, or as in
    another life, so that nothing of it can have been tried.

    Raises GraphChanged if it cannot, saying for this run why; CodecError for a value that cannot be read;
    CheckpointCorrupt for a checkpoint that contradicts itself.
    """
    _check_consistent(at)
    migrations = _find_migrations(definition, at)
    migrator = kernel.Migrator(definition.graph, definition.codec.pack, _describe_type)
    after = migrator.run(at, migrations) if migrations else at
    if migrations and not afresh:
        _check_places(at, after, migrations, strictly=bool(log.outcomes or log.entries))
    log = _migrate_log(definition, after, log, migrator)
    lacking = [
        *kernel.find_incompatibilities(definition.graph, after, log),
        *([] if afresh else _find_unordered_fan_ins(definition, after)),
    ]
    lacking = lacking or list(
        kernel.find_rejected_signals(definition.graph, after, decode_pending(at, signals, definition.codec))
    )
    if lacking:
        raise _incompatible_error(at, lacking)
    if not is_changed(definition, at):
        return CompatibleRun(at, log)
    check_same_workflow(definition, at)
    header = replace(at.header, signature=definition.signature, version=definition.version)
    executors = {id: saved for id, saved in after.executors.items() if id in definition.graph.executors}
    return CompatibleRun(
        replace(after, header=header, executors=executors),
        log,
        tuple(_describe_changes(definition, at, migrations)),
        migrations,
    )


def check_same_workflow(definition: WorkflowDefinition, at: Checkpoint) -> None:
    """Raises GraphChanged if a run is plainly one of another workflow: nobody who played in it is here."""
    stored = [str(id) for id in at.header.signature.get("executors", ())]
    migrations = [migration for migration in definition.migrations if migration.version > at.header.version]
    if stored and not any(follow_renames(id, migrations) in definition.graph.executors for id in stored):
        raise _incompatible_error(at, describe_differences(at.header.signature, definition.signature))


def _find_migrations(definition: WorkflowDefinition, at: Checkpoint) -> tuple[Migration, ...]:
    """The migrations that lead from the version of a run to that of the workflow."""
    stored, present = at.header.version, definition.version
    if stored > present:
        raise _incompatible_error(
            at, [f"it is a run of version {stored} of the workflow, and this code is version {present}"]
        )
    ahead = tuple(migration for migration in definition.migrations if migration.version > stored)
    if stored < present and (not ahead or ahead[0].version != stored + 1):
        available = f"the first there is leads to {ahead[0].version}" if ahead else "there are none"
        raise _incompatible_error(
            at, [f"no migration leads from version {stored}, which it is of, to {stored + 1}: {available}"]
        )
    return ahead


def _check_consistent(at: Checkpoint) -> None:
    """Nobody can have meant an executor that the graph a checkpoint was stored with does not have."""
    executors = at.header.signature.get("executors")
    if not executors:  # it was made by hand
        return
    asking = (request.executor for request in at.requests.values())
    taking = (taker for message in at.messages for taker in message.takers)
    for name in (*at.executors, *asking, *taking):
        if name not in executors:
            raise CheckpointCorrupt(
                f"checkpoint {at.stamp.checkpoint_id} of run {at.run_id!r} is damaged: it names the executor {name!r}, "
                f"which the graph it was stored with does not have"
            )


def _check_places(before: Checkpoint, after: Checkpoint, migrations: Sequence[Migration], *, strictly: bool) -> None:
    """What was begun in the superstep that is under way is known by its place in it: nobody may change places.

    Unless `strictly`, nothing is remembered of it; but it may have been tried, so those that stay keep their places.
    """
    slots = [(message.id, follow_renames(taker, migrations)) for message in before.messages for taker in message.takers]
    now = [(message.id, taker) for message in after.messages for taker in message.takers]
    if not strictly:
        if not _shifts_places(before, slots, now):
            return
        words = "what it is doing may have been tried before, and would be known by other keys"
        raise _incompatible_error(
            before, [f"{words}: let the version before finish that, or fork the run, which does it afresh"]
        )
    changed = [step for migration in migrations for step in migration.steps if isinstance(step, ChangeFanIn)]
    joins = {key for message in before.messages for key in message.joins}
    if [taker for _, taker in slots] != [taker for _, taker in now] or any(
        step.before.key in joins for step in changed
    ):
        words = "it is in the middle of a superstep, and who gets its messages would be changed"
        raise _incompatible_error(
            before, [f"{words}: let the version before finish that, or fork the run, which does it afresh"]
        )


def _shifts_places(before: Checkpoint, slots: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> bool:
    """Whether a call that stays would get the place that another one had; those of fan-ins come after the others."""
    if [id for id, _ in slots] == [id for id, _ in now]:
        return False
    common = min(len(slots), len(now))
    return slots[:common] != now[:common] or _has_complete_fan_in(before)


def _has_complete_fan_in(at: Checkpoint) -> bool:
    """Whether a fan-in has everything it waits for."""
    for key in {key for message in at.messages for key in message.joins}:
        came = {message.source for message in at.messages if key in message.joins}
        fan_in = fan_in_of(key)
        if fan_in is not None and came.issuperset(set(fan_in.sources) - at.held.get(key, {}).keys()):
            return True
    return False


def _migrate_log(
    definition: WorkflowDefinition, at: Checkpoint, log: RecalledLog, migrator: kernel.Migrator
) -> RecalledLog:
    """What was finished in the superstep that is under way, as of this version."""
    if all(outcome.version >= definition.version for outcome in log.outcomes.values()):
        return log
    outcomes = {}
    for id, outcome in log.outcomes.items():
        if outcome.version >= definition.version:  # finished since this code has taken over
            outcomes[id] = outcome
            continue
        ahead = [migration for migration in definition.migrations if migration.version > outcome.version]
        if not ahead or ahead[0].version != outcome.version + 1:
            finished = (
                f"{outcome.executor!r} of version {outcome.version} has finished in the superstep that is under way"
            )
            raise _incompatible_error(at, [f"{finished}, and no migration leads from that version to the next"])
        outcomes[id] = migrator.migrate_outcome(at, outcome, ahead)
    return RecalledLog(outcomes, log.entries)


def _find_unordered_fan_ins(definition: WorkflowDefinition, at: Checkpoint) -> Iterator[str]:
    """Fan-ins that fire in one superstep do so in the order of the edges, which only the graph that began it knows."""
    if not is_changed(definition, at):
        return
    alone = sum(len(message.takers) for message in at.messages)
    planned = kernel.plan(definition.graph, at.place, at.messages, at.held).deliveries
    if len(planned) - alone > 1:
        yield "it is in the middle of a superstep that several fan-ins began, and which was first is not known here"


def _describe_changes(definition: WorkflowDefinition, at: Checkpoint, migrations: Sequence[Migration]) -> Iterator[str]:
    for migration in migrations:
        yield f"version {migration.version - 1} became version {migration.version}"
        yield from map(describe_step, migration.steps)
    yield from describe_differences(at.header.signature, definition.signature)


def _incompatible_error(at: Checkpoint, why: Sequence[str]) -> GraphChanged:
    return GraphChanged(
        f"run {at.run_id!r} cannot go on with this code: {'; '.join(why)}. {_HINT}",
        differences=why,
    )


def _describe_type(annotation: object) -> tuple[str, str]:
    return type_words(annotation), schema_of(annotation)

"""Decides whether this code can resume a stored run, and returns the run as this code sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from stepwell import kernel
from stepwell.engine.intake.signals import select_epoch
from stepwell.engine.opening.definition import WorkflowDefinition
from stepwell.errors import CheckpointCorrupt, GraphChanged
from stepwell.graph.edges import fan_in_of
from stepwell.graph.graph import describe_differences
from stepwell.graph.migration import Migration, follow_renames
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.log_keys import RecalledLog
from stepwell.model.signal import ReceivedInput, ReceivedResponse, Signal
from stepwell.storage.response_types import schema_of, type_words

_HINT = "Resume it with code that has what is missing, or declare in a Migration what becomes of it"
_FINISH_FIRST = "let the earlier version finish the superstep, or fork the run, which runs it from the beginning"


class CompatibleRun(msgspec.Struct, frozen=True):
    """A stored run as this code resumes it."""

    at: Checkpoint
    log: RecalledLog
    # What differs from the stored run; empty if nothing does.
    changes: tuple[str, ...] = ()
    migrations: tuple[Migration, ...] = ()  # those that were applied


def is_changed(definition: WorkflowDefinition, at: Checkpoint) -> bool:
    """Return whether a run was stored by another graph, or by another version of the workflow."""
    return (at.header.signature, at.header.version) != (definition.signature, definition.version)


def make_compatible(
    definition: WorkflowDefinition,
    at: Checkpoint,
    log: RecalledLog,
    signals: Mapping[str, Signal] = MappingProxyType({}),
    *,
    afresh: bool = False,
) -> CompatibleRun:
    """Return the run as this code resumes it, migrated if necessary; nothing is stored.

    `signals` are those that are not applied yet. `afresh`: the run continues as another run, or in
    another epoch, so that its superstep cannot have started yet.

    Raises GraphChanged if this code cannot resume it, with the reasons; CodecError for a value that cannot be
    decoded; CheckpointCorrupt for a checkpoint that contradicts itself.
    """
    _check_consistent(at)
    migrations = _find_migrations(definition, at)
    migrator = kernel.Migrator(definition.graph, definition.codec.pack, _describe_type)
    after = migrator.run(at, migrations) if migrations else at
    if migrations and not afresh:
        # A repetition must find the log entries of the superstep under the same names.
        _check_delivery_ids(at, after, migrations, strictly=bool(log.outcomes or log.entries))
    log = _migrate_log(definition, after, log, migrator)
    missing = [
        *kernel.find_incompatibilities(definition.graph, after, log),
        *([] if afresh else _find_unordered_fan_ins(definition, after)),
    ]
    # Signals are judged last: what they are compared with must be sound first.
    # JSON responses are converted only when they are applied.
    typed = [s for s in select_epoch(at, signals).values() if isinstance(s, ReceivedResponse | ReceivedInput)]
    missing = missing or list(kernel.find_rejected_signals(definition.graph, after, typed))
    if missing:
        steps = kernel.suggest_steps(definition.graph, after)
        raise _incompatible_error(at, missing, [step.describe(definition.version + 1) for step in steps])
    if not is_changed(definition, at):
        return CompatibleRun(at, log)
    check_same_workflow(definition, at)
    header = replace(at.header, signature=definition.signature, version=definition.version)
    # State of executors that no longer exist is dropped here; `missing` has no objection to that.
    executors = {id: saved for id, saved in after.executors.items() if id in definition.graph.executors}
    return CompatibleRun(
        replace(after, header=header, executors=executors),
        log,
        tuple(_describe_changes(definition, at, migrations)),
        migrations,
    )


def check_same_workflow(definition: WorkflowDefinition, at: Checkpoint) -> None:
    """Raise GraphChanged if a run clearly belongs to another workflow: none of its executors exists here."""
    stored = [str(id) for id in at.header.signature.get("executors", ())]
    migrations = [migration for migration in definition.migrations if migration.version > at.header.version]
    if stored and not any(follow_renames(id, migrations) in definition.graph.executors for id in stored):
        raise _incompatible_error(at, describe_differences(at.header.signature, definition.signature))


def _find_migrations(definition: WorkflowDefinition, at: Checkpoint) -> tuple[Migration, ...]:
    """Return the migrations that lead from the version of a run to that of the workflow."""
    stored, present = at.header.version, definition.version
    if stored > present:
        raise _incompatible_error(
            at, [f"it was stored by version {stored} of the workflow, and this code is version {present}"]
        )
    ahead = tuple(migration for migration in definition.migrations if migration.version > stored)
    if stored < present and (not ahead or ahead[0].version != stored + 1):
        available = f"the first one leads to version {ahead[0].version}" if ahead else "there are none"
        raise _incompatible_error(
            at, [f"it is at version {stored}, and no migration leads from {stored} to {stored + 1}: {available}"]
        )
    return ahead


def _check_consistent(at: Checkpoint) -> None:
    """Raise CheckpointCorrupt if a checkpoint names an executor that the graph stored with it does not have."""
    executors = at.header.signature.get("executors")
    # A checkpoint made by hand may have no signature.
    if not executors:
        return
    asking = (request.executor for request in at.requests.values())
    taking = (taker for message in at.messages for taker in message.takers)
    for name in (*at.executors, *asking, *taking):
        if name not in executors:
            raise CheckpointCorrupt(
                f"checkpoint {at.stamp.checkpoint_id} of run {at.run_id!r} is damaged: it names the executor {name!r}, "
                f"which the graph it was stored with does not have"
            )


def _check_delivery_ids(
    before: Checkpoint, after: Checkpoint, migrations: Sequence[Migration], *, strictly: bool
) -> None:
    """Raise GraphChanged if migrations would give a delivery of the superstep under way another id.

    Outcomes, steps and idempotency keys are named after the id of a delivery. With `strictly`, the
    superstep log has entries, and nothing may change. Otherwise the superstep may still have started, so
    deliveries that remain must keep their ids.
    """
    slots = [(message.id, follow_renames(taker, migrations)) for message in before.messages for taker in message.takers]
    now = [(message.id, taker) for message in after.messages for taker in message.takers]
    if not strictly:
        if not _shifts_delivery_ids(before, slots, now):
            return
        why = "its superstep may already have started, and would run again under other idempotency keys"
        raise _incompatible_error(before, [f"{why}: {_FINISH_FIRST}"])
    steps = [step for migration in migrations for step in migration.steps]
    changed = {step.arguments[0].key for step in steps if step.method == "change_fan_in"}
    joins = {key for message in before.messages for key in message.joins}
    if [taker for _, taker in slots] != [taker for _, taker in now] or changed & joins:
        why = "it is in the middle of a superstep, and the migration changes who receives its messages"
        raise _incompatible_error(before, [f"{why}: {_FINISH_FIRST}"])


def _shifts_delivery_ids(before: Checkpoint, slots: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> bool:
    """Return whether a remaining delivery would get the id of another. Fan-ins come after all other deliveries."""
    if [id for id, _ in slots] == [id for id, _ in now]:
        return False
    common = min(len(slots), len(now))
    return slots[:common] != now[:common] or _has_complete_fan_in(before)


def _has_complete_fan_in(at: Checkpoint) -> bool:
    """Return whether some fan-in has everything it waits for."""
    for key in {key for message in at.messages for key in message.joins}:
        came = {message.source for message in at.messages if key in message.joins}
        fan_in = fan_in_of(key)
        if fan_in is not None and came.issuperset(set(fan_in.sources) - at.held.get(key, {}).keys()):
            return True
    return False


def _migrate_log(
    definition: WorkflowDefinition, at: Checkpoint, log: RecalledLog, migrator: kernel.Migrator
) -> RecalledLog:
    """Return the superstep log with its outcomes migrated to this version."""
    if all(outcome.version >= definition.version for outcome in log.outcomes.values()):
        return log
    outcomes = {}
    for id, outcome in log.outcomes.items():
        # Logged by this code, in an earlier drive.
        if outcome.version >= definition.version:
            outcomes[id] = outcome
            continue
        ahead = [migration for migration in definition.migrations if migration.version > outcome.version]
        if not ahead or ahead[0].version != outcome.version + 1:
            finished = f"{outcome.executor!r} has finished in the current superstep, in version {outcome.version}"
            raise _incompatible_error(at, [f"{finished}, and no migration leads from that version to the next"])
        outcomes[id] = migrator.migrate_outcome(at, outcome, ahead)
    return RecalledLog(outcomes, log.entries)


def _find_unordered_fan_ins(definition: WorkflowDefinition, at: Checkpoint) -> Iterator[str]:
    """Yield a problem if several fan-ins fire now: their order is that of the edges of the graph that started it."""
    if not is_changed(definition, at):
        return
    alone = sum(len(message.takers) for message in at.messages)
    planned = kernel.plan(definition.graph, at.place, at.messages, at.held).deliveries
    if len(planned) - alone > 1:
        yield "it is in the middle of a superstep started by several fan-ins, and their order is not known to this code"


def _describe_changes(definition: WorkflowDefinition, at: Checkpoint, migrations: Sequence[Migration]) -> Iterator[str]:
    for migration in migrations:
        yield f"version {migration.version - 1} became version {migration.version}"
        yield from (step.description for step in migration.steps)
    yield from describe_differences(at.header.signature, definition.signature)


def _incompatible_error(at: Checkpoint, why: Sequence[str], suggestions: Sequence[str] = ()) -> GraphChanged:
    guesses = "".join(f". {suggestion[:1].upper()}{suggestion[1:]}" for suggestion in suggestions)
    return GraphChanged(
        f"run {at.run_id!r} cannot continue with this code: {'; '.join(why)}. {_HINT}{guesses}",
        differences=why,
        suggestions=suggestions,
    )


def _describe_type(annotation: object) -> tuple[str, str]:
    return type_words(annotation), schema_of(annotation)

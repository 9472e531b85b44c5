"""Migration of stored runs: what each declared step does to a checkpoint.

Pure but for the functions that the user declared. `graph/migration` is the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stepwell.errors import MigrationFailed, StepwellError
from stepwell.graph.edges import FanIn, fan_in_of
from stepwell.graph.graph import Graph
from stepwell.graph.migration import Change, Migration, MigrationStep, follow_renames
from stepwell.kernel.compatibility import find_executor_keys
from stepwell.kernel.lifecycle import full_commit
from stepwell.kernel.superstep import plan, status_of
from stepwell.kernel.timers import change_timers, next_timer
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, CommitKind, Stamp
from stepwell.model.event import WorkflowRunState
from stepwell.model.message import Outcome, RoutedMessage, Sent
from stepwell.model.payload import Pack, Payload
from stepwell.model.state_writes import Appended, Assigned, Write

DescribeType = Callable[[object], tuple[str, str]]
"""Returns the description of a type, and its JSON schema as text."""

_STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)


class Migrator:
    """Applies the steps of migrations to runs that this graph will resume."""

    def __init__(self, graph: Graph, pack: Pack, describe_type: DescribeType) -> None:
        self._graph, self._pack, self._describe_type = graph, pack, describe_type

    def run(self, at: Checkpoint, migrations: Iterable[Migration]) -> Checkpoint:
        """Return the checkpoint as these migrations leave it. Raises MigrationFailed; nothing has changed then."""
        after = at
        for migration in migrations:
            for step in migration.steps:
                after = self._run_step(after, migration, step)
        return self._update_status(at, self._release_fan_ins(after))

    def migrate_outcome(self, at: Checkpoint, outcome: Outcome, migrations: Sequence[Migration]) -> Outcome:
        """Return an outcome of the current superstep, made by an older version, in the present version's terms.

        Raises MigrationFailed if a step depends on what is known only after the superstep, such as
        where a message goes.
        """
        if any(_needs_commit(step, outcome) for migration in migrations for step in migration.steps):
            raise _migration_error(
                at, f"{outcome.executor!r} has already finished in the current superstep, and {_NOT_YET}"
            )
        # The steps are written for checkpoints, so the outcome is dressed up as one: its messages as
        # if in flight, its writes as if they were the state. Only assignments can be; deletions and
        # appended items have no value of their own, and only their keys are moved.
        sent = [RoutedMessage("", outcome.executor, message.payload, message.target) for message in outcome.sent]
        assigned = {key: write.value for key, write in outcome.writes.items() if isinstance(write, Assigned)}
        others = {key: write for key, write in outcome.writes.items() if key not in assigned}
        disguised = replace(
            at,
            messages=tuple(sent),
            held={},
            state=assigned,
            executors={} if outcome.saved is None else {outcome.executor: outcome.saved},
            requests={request.id: request for request in outcome.requests},
            children={key: child for key, child in outcome.children.items() if child is not None},
        )
        for migration in migrations:
            for step in migration.steps:
                disguised = self._run_step(disguised, migration, step)
                others = self._move_writes(others, step)
        ended = {key: None for key, child in outcome.children.items() if child is None}
        writes: dict[str, Write] = {**{key: Assigned(value) for key, value in disguised.state.items()}, **others}
        executor = follow_renames(outcome.executor, migrations)
        return replace(
            outcome,
            executor=executor,
            sent=tuple(Sent(message.payload, message.target) for message in disguised.messages),
            writes=writes,
            saved=disguised.executors.get(executor),
            requests=tuple(disguised.requests.values()),
            children={**disguised.children, **ended},
            version=migrations[-1].version,
        )

    def _move_writes(self, writes: dict[str, Write], step: MigrationStep) -> dict[str, Write]:
        match step.method, *step.arguments:
            case "rename_state", key, to:
                return {to if name == key else name: write for name, write in writes.items()}
            case "remove_state", key:
                return _without(writes, key)
            case "rename_executor", old, new:
                renamed = find_executor_keys(self._graph, writes, old, new)
                return {renamed.get(key, key): write for key, write in writes.items()}
        return writes

    def _run_step(self, at: Checkpoint, migration: Migration, step: MigrationStep) -> Checkpoint:
        try:
            migrated: Checkpoint = getattr(self, step.method)(at, *step.arguments)
        except Exception as error:  # a user's function may raise anything
            cause = str(error) if isinstance(error, StepwellError) else f"{type(error).__name__}: {error}"
            raise _migration_error(at, f"version {migration.version}, {step.description}: {cause}") from error
        return migrated

    # What follows applies the steps of a migration: one method for each method of `Migration`, with its
    # name and its arguments.

    def rename_executor(self, at: Checkpoint, old: str, new: str) -> Checkpoint:
        if old in at.executors and new in at.executors:
            raise ValueError(f"the run already has an executor {new!r}")
        keys = find_executor_keys(self._graph, at.state, old, new)
        messages = [
            replace(
                _readdress(message, {old: new}),
                source=new if message.source == old else message.source,
                joins=tuple(_rename_key(key, old, new) for key in message.joins),
            )
            for message in at.messages
        ]
        held = {
            _rename_key(key, old, new): {
                new if source == old else source: payloads for source, payloads in by_source.items()
            }
            for key, by_source in at.held.items()
        }
        # Rebuilt in their old order: the order of a dict is part of what is stored
        at = replace(
            at,
            messages=tuple(messages),
            held=held,
            executors={new if id == old else id: saved for id, saved in at.executors.items()},
            state={keys.get(key, key): value for key, value in at.state.items()},
        )
        return self.redirect_requests(at, old, new)

    def remove_executor(self, at: Checkpoint, id: str) -> Checkpoint:
        keys = find_executor_keys(self._graph, at.state, id)
        return replace(at, executors=_without(at.executors, id), state=_without(at.state, *keys))

    def hand_over_state(self, at: Checkpoint, id: str, to: str, join: Callable[..., Any]) -> Checkpoint:
        handed_over = at.executors[id].open() if id in at.executors else {}
        if not handed_over:
            return at
        before = at.executors[to].open() if to in at.executors else {}
        state = self._pack_executor_state(to, join(handed_over, before))
        return replace(at, executors={**_without(at.executors, id), to: state})

    def change_executor_state(self, at: Checkpoint, id: str, change: Change) -> Checkpoint:
        state = at.executors[id].open() if id in at.executors else {}
        changed = {id: self._pack_executor_state(id, change(state))} if state else {}
        return replace(at, executors={**at.executors, **changed})

    def _pack_executor_state(self, id: str, state: Any) -> Payload:
        if not isinstance(state, dict):
            raise TypeError(f"the function must return a dict as the state of {id!r}, not a {type(state).__name__}")
        return self._pack(state, f"$.executors.{id}")

    def change_state(self, at: Checkpoint, key: str, change: Change) -> Checkpoint:
        changed = {key: self._pack(change(at.state[key].open()), f"$.state.{key}")} if key in at.state else {}
        return replace(at, state={**at.state, **changed})

    def rename_state(self, at: Checkpoint, key: str, to: str) -> Checkpoint:
        if key in at.state and to in at.state:
            raise ValueError(f"state[{to!r}] already exists")
        return replace(at, state={to if name == key else name: value for name, value in at.state.items()})

    def remove_state(self, at: Checkpoint, key: str) -> Checkpoint:
        return replace(at, state=_without(at.state, key))

    def redirect_messages(self, at: Checkpoint, id: str, to: str) -> Checkpoint:
        return replace(at, messages=tuple([_readdress(message, {id: to}) for message in at.messages]))

    def drop_messages(self, at: Checkpoint, id: str) -> Checkpoint:
        kept = []
        for message in at.messages:
            takers = tuple(taker for taker in message.takers if taker != id)
            joins = tuple(key for key in message.joins if _target(key) != id)
            # one that had no receiver to begin with, because every condition declined it, is left alone
            if takers or joins or not (message.takers or message.joins):
                kept.append(replace(message, takers=takers, joins=joins))
        held = {key: by_source for key, by_source in at.held.items() if _target(key) != id}
        return replace(at, messages=tuple(kept), held=held)

    def change_messages(self, at: Checkpoint, id: str, change: Change) -> Checkpoint:
        messages = [part for message in at.messages for part in self._change_message(message, id, change)]
        held = {
            key: {
                s: tuple(self._change_payload(payload, change) for payload in payloads)
                for s, payloads in by_source.items()
            }
            if _target(key) == id
            else by_source
            for key, by_source in at.held.items()
        }
        return replace(at, messages=tuple(messages), held=held)

    def _change_message(self, message: RoutedMessage, id: str, change: Change) -> list[RoutedMessage]:
        """Change a message for one receiver. If it has several, it is split, because the others keep the old payload.

        One part for each receiver, in their order, so that the deliveries keep theirs.
        """
        mine = tuple(key for key in message.joins if _target(key) == id)
        # A response is checked against its request, and a timer has a name: a migration of messages leaves both alone
        if message.reply is not None or message.timer is not None or (id not in message.takers and not mine):
            return [message]
        payload = self._change_payload(message.payload, change)
        others = tuple(key for key in message.joins if key not in mine)
        parts = [
            replace(message, takers=(taker,), joins=(), payload=payload if taker == id else message.payload)
            for taker in message.takers
        ]
        joined = [(mine, payload), (others, message.payload)]
        return parts + [replace(message, takers=(), joins=keys, payload=value) for keys, value in joined if keys]

    def _change_payload(self, payload: Payload, change: Change) -> Payload:
        return self._pack(change(payload.open()), "$.message")

    def redirect_requests(self, at: Checkpoint, id: str, to: str) -> Checkpoint:
        requests = {
            key: replace(request, executor=to) if request.executor == id else request
            for key, request in at.requests.items()
        }
        children = {
            key: replace(child, executor=to) if child.executor == id else child for key, child in at.children.items()
        }
        # Of two timers of one name, that of the new executor stays: it says when that one wants to be called.
        timers = change_timers(_without(at.timers, id), {to: {**at.timers.get(id, {}), **at.timers.get(to, {})}})
        return replace(at, requests=requests, children=children, timers=timers)

    def withdraw_requests(self, at: Checkpoint, id: str) -> Checkpoint:
        requests = {key: request for key, request in at.requests.items() if request.executor != id}
        children = {key: child for key, child in at.children.items() if child.executor != id}
        return replace(at, requests=requests, children=children, timers=_without(at.timers, id))

    def change_requests(
        self, at: Checkpoint, executor: str, change: Change | None, response_type: object
    ) -> Checkpoint:
        requests = dict(at.requests)
        for id, request in at.requests.items():
            if request.executor != executor:
                continue
            if change is not None:
                question = change(request.payload.open())
                type_name, _ = self._describe_type(type(question))
                request = replace(request, payload=self._pack(question, f"$.requests.{id}"), request_type=type_name)
            if response_type is not None:
                type_name, schema = self._describe_type(response_type)
                request = replace(request, response_type=type_name, schema=schema)
            requests[id] = request
        return replace(at, requests=requests)

    def change_fan_in(self, at: Checkpoint, before: FanIn, after: FanIn) -> Checkpoint:
        held = {key: by_source for key, by_source in at.held.items() if key != before.key}
        kept = {source: payloads for source, payloads in at.held.get(before.key, {}).items() if source in after.sources}
        messages = [_rejoin(message, before, after) for message in at.messages]
        sent = [message for message in messages if message.takers or message.joins]
        if len(after.sources) > 1:
            # the new fan-in may exist already and hold messages, which come after those of the old one
            waiting = held.get(after.key, {})
            joined = {source: (*kept.get(source, ()), *waiting.get(source, ())) for source in {**kept, **waiting}}
            return replace(at, messages=tuple(sent), held={**held, after.key: joined} if joined else held)
        # With a single source there is nothing to wait for, and no fan-in in the graph: deliver directly
        for source, payloads in kept.items():
            for payload in payloads:
                id = f"{at.number + 1}.{len(sent)}"
                sent.append(RoutedMessage(id, source, payload, takers=(after.target,)))
        return replace(at, messages=tuple(sent), held=held)

    def _update_status(self, before: Checkpoint, after: Checkpoint) -> Checkpoint:
        """Update the status, which may be completed if the migrations left nothing to deliver.

        A run that had failed or was cancelled stays so: migrating it is not resuming it.
        """
        following = plan(self._graph, after.place, after.messages, after.held)
        if before.status in _STOPPED and (following.deliveries or not before.messages):
            return after
        wake = before.wake if following.deliveries else next_timer(after.timers, after.children)
        return replace(after, status=status_of(following, waiting=bool(after.requests), wake=wake), wake=wake)

    def _release_fan_ins(self, at: Checkpoint) -> Checkpoint:
        """Complete the fan-ins that the migrations left with everything they wait for.

        A fan-in fires when a message arrives. Nothing may ever arrive at one that is complete already,
        so the payloads of its last source are put in flight to it again.
        """
        held, messages = dict(at.held), list(at.messages)
        for edge in self._graph.edges:
            by_source = held.get(edge.key, {}) if isinstance(edge, FanIn) else {}
            if not isinstance(edge, FanIn) or not all(by_source.get(source) for source in edge.sources):
                continue
            last = edge.sources[-1]
            held[edge.key] = _without(by_source, last)
            for payload in by_source[last]:
                id = f"{at.number + 1}.{len(messages)}"
                messages.append(RoutedMessage(id, last, payload, joins=(edge.key,)))
        return at if len(messages) == len(at.messages) else replace(at, messages=tuple(messages), held=held)


def _needs_commit(step: MigrationStep, outcome: Outcome) -> bool:
    """Return whether a step depends on what this outcome becomes only when the superstep is committed."""
    match step.method:
        case "change_messages":
            return bool(outcome.sent)
        case "hand_over_state":
            return outcome.saved is not None
        case "change_state":
            return isinstance(outcome.writes.get(step.arguments[0]), Appended)
    return False


_NOT_YET = "what it sent or wrote cannot be migrated before that ends: fork the run, which runs it from the beginning"


def migrate(before: Checkpoint, after: Checkpoint, changes: tuple[str, ...], stamp: Stamp) -> Commit:
    """Return the commit by which other code continues a run: the whole of `after`, at the place of `before`.

    The place is kept so that outcomes which are already in the superstep log are still recalled.
    """
    number, closed = before.number + 1, tuple(before.requests)
    commit = replace(full_commit(after), number=number, kind=CommitKind.MIGRATED, stamp=stamp)
    return replace(commit, closed=closed, migrated=changes)


def _migration_error(at: Checkpoint, reason: str) -> MigrationFailed:
    return MigrationFailed(
        f"run {at.run_id!r} could not be migrated: {reason}. Nothing was changed", differences=[reason]
    )


def _without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _target(key: str) -> str | None:
    """Return the executor that a fan-in delivers to; None if the key is not one of a fan-in."""
    fan_in = fan_in_of(key)
    return None if fan_in is None else fan_in.target


def _rename_key(key: str, old: str, new: str) -> str:
    fan_in = fan_in_of(key)
    if fan_in is None:
        return key
    named = [new if id == old else id for id in (*fan_in.sources, fan_in.target)]
    return FanIn(tuple(named[:-1]), named[-1]).key


def _readdress(message: RoutedMessage, names: Mapping[str, str]) -> RoutedMessage:
    takers = tuple(names.get(taker, taker) for taker in message.takers)
    target = None if message.target is None else names.get(message.target, message.target)
    return replace(message, takers=takers, target=target)


def _rejoin(message: RoutedMessage, before: FanIn, after: FanIn) -> RoutedMessage:
    if before.key not in message.joins:
        return message
    others = tuple(key for key in message.joins if key != before.key)
    if message.source not in after.sources:
        return replace(message, joins=others)
    if len(after.sources) > 1:
        return replace(message, joins=(*others, after.key))
    return replace(message, takers=(*message.takers, after.target), joins=others)

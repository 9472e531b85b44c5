"""What the steps of a migration do to a run: pure, but for the functions that the user declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stepwell.errors import MigrationFailed, StepwellError
from stepwell.graph.edges import FanIn, fan_in_of
from stepwell.graph.graph import Graph
from stepwell.graph.migration import (
    ChangeExecutorState,
    ChangeFanIn,
    ChangeMessages,
    ChangeQuestions,
    ChangeState,
    DropMessages,
    HandOver,
    Migration,
    RedirectMessages,
    RedirectQuestions,
    RemoveExecutor,
    RemoveState,
    RenameExecutor,
    RenameState,
    Step,
    WithdrawQuestions,
    follow_renames,
    in_words,
)
from stepwell.kernel.compatibility import own_keys
from stepwell.kernel.lifecycle import full_commit
from stepwell.kernel.plan import plan, status_of
from stepwell.model.event import WorkflowRunState
from stepwell.model.payload import Pack, Payload
from stepwell.model.superstep import (
    Appended,
    Assigned,
    Checkpoint,
    Commit,
    CommitKind,
    Outcome,
    RoutedMessage,
    Sent,
    Stamp,
    Write,
)

DescribeType = Callable[[object], tuple[str, str]]
"""Of a type: its words, and its JSON schema as text."""

_STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)


class Migrator:
    """Makes the steps of migrations, for a graph."""

    def __init__(self, graph: Graph, pack: Pack, describe_type: DescribeType) -> None:
        self._graph, self._pack, self._describe_type = graph, pack, describe_type

    def run(self, at: Checkpoint, migrations: Iterable[Migration]) -> Checkpoint:
        """The run as these migrations leave it. Raises MigrationFailed, and then nothing has changed."""
        after = at
        for migration in migrations:
            for step in migration.steps:
                after = self._run_step(after, migration, step)
        return self._update_status(at, self._release_fan_ins(after))

    def outcome(self, at: Checkpoint, outcome: Outcome, migrations: Sequence[Migration]) -> Outcome:
        """What a handler of an older version had done in the superstep that is under way, as of the present one.

        Raises MigrationFailed if that cannot be said: where a message goes is not known before the superstep ends.
        """
        if any(_is_unclear(step, outcome) for migration in migrations for step in migration.steps):
            raise _migration_error(
                at, f"{outcome.executor!r} has finished in the superstep that is under way; {_LATER}"
            )
        sent = [RoutedMessage("", outcome.executor, message.payload, message.target) for message in outcome.sent]
        assigned = {key: write.value for key, write in outcome.writes.items() if isinstance(write, Assigned)}
        others = {key: write for key, write in outcome.writes.items() if key not in assigned}
        seen = replace(
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
                seen = self._run_step(seen, migration, step)
                others = self._move_writes(others, step)
        ended = {key: None for key, child in outcome.children.items() if child is None}
        writes: dict[str, Write] = {**{key: Assigned(value) for key, value in seen.state.items()}, **others}
        executor = follow_renames(outcome.executor, migrations)
        return replace(
            outcome,
            executor=executor,
            sent=tuple(Sent(message.payload, message.target) for message in seen.messages),
            writes=writes,
            saved=seen.executors.get(executor),
            requests=tuple(seen.requests.values()),
            children={**seen.children, **ended},
            version=migrations[-1].version,
        )

    def _move_writes(self, writes: dict[str, Write], step: Step) -> dict[str, Write]:
        match step:
            case RenameState(key=key, to=to):
                return {to if name == key else name: write for name, write in writes.items()}
            case RemoveState(key=key):
                return {name: write for name, write in writes.items() if name != key}
            case RenameExecutor(executor=old, to=new):
                own = own_keys(self._graph, writes, old, new)
                return {own.get(key, key): write for key, write in writes.items()}
        return writes

    def _run_step(self, at: Checkpoint, migration: Migration, step: Step) -> Checkpoint:
        try:
            return self._apply_step(at, step)
        except StepwellError as error:
            raise _migration_error(at, f"version {migration.version}, {in_words(step)}: {error}") from error
        except Exception as error:  # whatever the function of a user raises
            what = f"{type(error).__name__}: {error}"
            raise _migration_error(at, f"version {migration.version}, {in_words(step)}: {what}") from error

    def _apply_step(self, at: Checkpoint, step: Step) -> Checkpoint:
        match step:
            case RenameExecutor(executor=old, to=new):
                return self._rename(at, old, new)
            case RemoveExecutor(executor=id):
                own = own_keys(self._graph, at.state, id)
                return replace(at, executors=_without(at.executors, id), state=_without(at.state, *own))
            case HandOver(executor=id, to=to, join=join):
                return self._hand_over(at, id, to, join)
            case ChangeExecutorState(executor=id, change=change):
                return self._change_executor_state(at, id, change)
            case ChangeState(key=key, change=change) if key in at.state:
                value = self._pack(change(at.state[key].open()), f"$.state.{key}")
                return replace(at, state={**at.state, key: value})
            case RenameState(key=key, to=to) if key in at.state:
                if to in at.state:
                    raise ValueError(f"state[{to!r}] is there already")
                return replace(at, state={to if name == key else name: value for name, value in at.state.items()})
            case RemoveState(key=key):
                return replace(at, state=_without(at.state, key))
            case ChangeFanIn(before=before, after=after):
                return _change_fan_in(at, before, after)
        return self._apply_message_step(at, step)

    def _apply_message_step(self, at: Checkpoint, step: Step) -> Checkpoint:
        """Those steps that are about messages and questions."""
        match step:
            case RedirectMessages(executor=id, to=to):
                moved = [_readdress(message, {id: to}) for message in at.messages]
                return replace(at, messages=tuple(moved))
            case DropMessages(executor=id):
                kept = {key: held for key, held in at.held.items() if _target(key) != id}
                return replace(at, messages=_drop_messages(at.messages, id), held=kept)
            case ChangeMessages(executor=id, change=change):
                return self._change_messages(at, id, change)
            case RedirectQuestions(executor=id, to=to):
                return _reassign_requests(at, id, to)
            case WithdrawQuestions(executor=id):
                requests = {key: one for key, one in at.requests.items() if one.executor != id}
                children = {key: one for key, one in at.children.items() if one.executor != id}
                return replace(at, requests=requests, children=children)
            case ChangeQuestions():
                return self._change_questions(at, step)
        return at

    def _rename(self, at: Checkpoint, old: str, new: str) -> Checkpoint:
        if old in at.executors and new in at.executors:
            raise ValueError(f"the run has an executor {new!r} already")
        own = own_keys(self._graph, at.state, old, new)
        messages = [_rename_in_message(message, old, new) for message in at.messages]
        held = {
            _rename_key(key, old, new): {new if one == old else one: values for one, values in by_source.items()}
            for key, by_source in at.held.items()
        }
        at = replace(
            at,
            messages=tuple(messages),
            held=held,
            executors={new if id == old else id: saved for id, saved in at.executors.items()},
            state={own.get(key, key): value for key, value in at.state.items()},
        )
        return _reassign_requests(at, old, new)

    def _hand_over(self, at: Checkpoint, id: str, to: str, join: Callable[..., Any]) -> Checkpoint:
        handed_over = at.executors[id].open() if id in at.executors else {}
        if not handed_over:
            return at
        before = at.executors[to].open() if to in at.executors else {}
        return replace(
            at, executors={**_without(at.executors, id), to: self._pack_executor_state(to, join(handed_over, before))}
        )

    def _change_executor_state(self, at: Checkpoint, id: str, change: Callable[[Any], Any]) -> Checkpoint:
        state = at.executors[id].open() if id in at.executors else {}
        return (
            replace(at, executors={**at.executors, id: self._pack_executor_state(id, change(state))}) if state else at
        )

    def _pack_executor_state(self, id: str, state: Any) -> Payload:
        if not isinstance(state, dict):
            raise TypeError(f"what {id!r} keeps is a dict, and the function gave a {type(state).__name__}")
        return self._pack(state, f"$.executors.{id}")

    def _change_messages(self, at: Checkpoint, id: str, change: Callable[[Any], Any]) -> Checkpoint:
        messages: list[RoutedMessage] = []
        for message in at.messages:
            messages += self._change_message(message, id, change)
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

    def _change_message(self, message: RoutedMessage, id: str, change: Callable[[Any], Any]) -> list[RoutedMessage]:
        """A message to several is taken apart where one of them gets something else; the order stays."""
        mine = tuple(key for key in message.joins if _target(key) == id)
        if message.reply is not None or (id not in message.takers and not mine):
            return [message]
        payload = self._change_payload(message.payload, change)
        others = tuple(key for key in message.joins if key not in mine)
        parts = [
            replace(message, takers=(taker,), joins=(), payload=payload if taker == id else message.payload)
            for taker in message.takers
        ]
        if mine:
            parts.append(replace(message, takers=(), joins=mine, payload=payload))
        if others:
            parts.append(replace(message, takers=(), joins=others))
        return parts

    def _change_payload(self, payload: Payload, change: Callable[[Any], Any]) -> Payload:
        return self._pack(change(payload.open()), "$.message")

    def _change_questions(self, at: Checkpoint, step: ChangeQuestions) -> Checkpoint:
        requests = dict(at.requests)
        for id, request in at.requests.items():
            if request.executor != step.executor:
                continue
            if step.change is not None:
                question = step.change(request.payload.open())
                words, _ = self._describe_type(type(question))
                request = replace(request, payload=self._pack(question, f"$.questions.{id}"), request_type=words)
            if step.response_type is not None:
                words, schema = self._describe_type(step.response_type)
                request = replace(request, response_type=words, schema=schema)
            requests[id] = request
        return replace(at, requests=requests)

    def _update_status(self, before: Checkpoint, after: Checkpoint) -> Checkpoint:
        """Where the run is now, which may be done if nothing is left to deliver. One that had stopped stays so."""
        following = plan(self._graph, after.place, after.messages, after.held)
        if before.status in _STOPPED and (following.deliveries or not before.messages):
            return after
        status = status_of(following, waiting=bool(after.requests))
        return replace(after, status=status, wake=before.wake if following.deliveries else None)

    def _release_fan_ins(self, at: Checkpoint) -> Checkpoint:
        """A fan-in fires when a message comes: what completes one that was changed is sent to it once more."""
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


def _is_unclear(step: Step, outcome: Outcome) -> bool:
    """Whether a step would change what is known only when the superstep has ended."""
    match step:
        case ChangeMessages():
            return bool(outcome.sent)
        case HandOver():
            return outcome.saved is not None
        case ChangeState(key=key):
            return isinstance(outcome.writes.get(key), Appended)
    return False


_LATER = "what it sent or wrote cannot be migrated before the superstep ends: fork the run, which does it afresh"


def migrate(before: Checkpoint, after: Checkpoint, words: tuple[str, ...], stamp: Stamp) -> Commit:
    """The commit with which other code takes a run over: everything as `after` says, at the place where it was."""
    number, closed = before.number + 1, tuple(before.requests)
    commit = replace(full_commit(after), number=number, kind=CommitKind.MIGRATED, stamp=stamp)
    return replace(commit, closed=closed, migrated=words)


def _migration_error(at: Checkpoint, why: str) -> MigrationFailed:
    return MigrationFailed(f"run {at.run_id!r} could not be migrated: {why}. Nothing was changed", differences=[why])


def _without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _target(key: str) -> str | None:
    """The executor that a fan-in delivers to."""
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


def _rename_in_message(message: RoutedMessage, old: str, new: str) -> RoutedMessage:
    joins = tuple(_rename_key(key, old, new) for key in message.joins)
    source = new if message.source == old else message.source
    return replace(_readdress(message, {old: new}), source=source, joins=joins)


def _drop_messages(messages: Iterable[RoutedMessage], id: str) -> tuple[RoutedMessage, ...]:
    kept = []
    for message in messages:
        takers = tuple(taker for taker in message.takers if taker != id)
        joins = tuple(key for key in message.joins if _target(key) != id)
        if takers or joins or not (message.takers or message.joins):
            kept.append(replace(message, takers=takers, joins=joins))
    return tuple(kept)


def _reassign_requests(at: Checkpoint, id: str, to: str) -> Checkpoint:
    """The open questions and runs inside of one executor are those of another."""
    requests = {key: replace(one, executor=to) if one.executor == id else one for key, one in at.requests.items()}
    children = {key: replace(one, executor=to) if one.executor == id else one for key, one in at.children.items()}
    return replace(at, requests=requests, children=children)


def _change_fan_in(at: Checkpoint, before: FanIn, after: FanIn) -> Checkpoint:
    held = {key: by_source for key, by_source in at.held.items() if key != before.key}
    kept = {source: payloads for source, payloads in at.held.get(before.key, {}).items() if source in after.sources}
    messages = [_rejoin(message, before, after) for message in at.messages]
    sent = [message for message in messages if message.takers or message.joins]
    if len(after.sources) > 1:
        waiting = held.get(after.key, {})
        joined = {source: (*kept.get(source, ()), *waiting.get(source, ())) for source in {**kept, **waiting}}
        return replace(at, messages=tuple(sent), held={**held, after.key: joined} if joined else held)
    for source, payloads in kept.items():
        for payload in payloads:
            id = f"{at.number + 1}.{len(sent)}"
            sent.append(RoutedMessage(id, source, payload, takers=(after.target,)))
    return replace(at, messages=tuple(sent), held=held)


def _rejoin(message: RoutedMessage, before: FanIn, after: FanIn) -> RoutedMessage:
    if before.key not in message.joins:
        return message
    others = tuple(key for key in message.joins if key != before.key)
    if message.source not in after.sources:
        return replace(message, joins=others)
    if len(after.sources) > 1:
        return replace(message, joins=(*others, after.key))
    return replace(message, takers=(*message.takers, after.target), joins=others)

"""The rules of a superstep, in the order in which it meets them.

`plan` says which handlers to call, and what the fan-ins still hold. `route` decides who receives a
message that a handler sent; `merge` makes one commit of all outcomes, in the order of the plan, and
plans the superstep after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stepwell.errors import RoutingFailed, RunError, StepwellError
from stepwell.graph.edges import Edge, FanIn
from stepwell.graph.graph import Graph
from stepwell.graph.type_matching import describe
from stepwell.kernel.requests import inner_id, release_answers, unused_warning
from stepwell.kernel.timers import TimerChanges, change_timers, next_timer
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.commit import Commit, CommitKind, Done, Stamp
from stepwell.model.event import WorkflowRunState
from stepwell.model.message import Delivery, Held, Outcome, Plan, Reply, Routed, RoutedMessage
from stepwell.model.payload import Pack, Payload, PayloadList
from stepwell.model.request import Request
from stepwell.model.state import fold_writes

_Call = tuple[str, Payload, tuple[str, ...], Reply | None, str | None]  # a delivery that has no id yet


# -------------------------------------------------------------------- the plan


def status_of(following: Plan, *, waiting: bool, wake: str | None = None) -> WorkflowRunState:
    """Return the status of a run that has this plan ahead. `waiting`: it has open requests; `wake`: and a timer."""
    if following.deliveries:
        return WorkflowRunState.IN_PROGRESS_PENDING_REQUESTS if waiting else WorkflowRunState.IN_PROGRESS
    if waiting:
        return WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    return WorkflowRunState.IDLE if wake is None else WorkflowRunState.IN_PROGRESS


def plan(graph: Graph, place: int, messages: Iterable[RoutedMessage], held: Held) -> Plan:
    """Turn the messages in flight into deliveries.

    A fan-in delivers once each of its sources has sent something. The same arguments always give
    the same deliveries under the same ids: a resume relies on it to recall stored outcomes. Late
    messages come last, so that they change no id.
    """
    calls: list[_Call] = []
    late: list[_Call] = []
    # Copied only when a fan-in receives something: `merge` takes an unchanged `held` as a sign that
    # there is nothing to store.
    holding: dict[str, dict[str, tuple[Payload, ...]]] | None = None
    for message in messages:
        sources = () if message.source is None else (message.source,)
        following = late if message.source is None and message.is_late(place) else calls
        following += [(taker, message.payload, sources, message.reply, message.timer) for taker in message.takers]
        if message.joins and message.source is not None:
            holding = {key: dict(by_source) for key, by_source in held.items()} if holding is None else holding
            for key in message.joins:
                by_source = holding.setdefault(key, {})
                by_source[message.source] = (*by_source.get(message.source, ()), message.payload)
    # After all messages are sorted in, so that a fan-in delivers everything its sources sent at once
    if holding is not None:
        calls.extend(_complete_fan_ins(graph, holding))
    calls += late
    deliveries = [Delivery(f"{place}.{n}", *call) for n, call in enumerate(calls)]
    return Plan(tuple(deliveries), held if holding is None else holding)


def _complete_fan_ins(graph: Graph, holding: dict[str, dict[str, tuple[Payload, ...]]]) -> Iterable[_Call]:
    """Empty the fan-ins that are complete, and yield a call for each, in the order of the graph's edges."""
    for edge in graph.edges:
        if isinstance(edge, FanIn) and all(holding.get(edge.key, {}).get(source) for source in edge.sources):
            by_source = holding.pop(edge.key)
            # in the order in which the sources are declared, not the one in which they happened to send
            everything = PayloadList(tuple([p for source in edge.sources for p in by_source[source]]))
            yield edge.target, everything, edge.sources, None, None


def waiting_joins(graph: Graph, held: Held) -> list[str]:
    """Describe each fan-in that still holds something: what it holds, and which sources are missing."""
    sentences = []
    for edge in graph.edges:
        if isinstance(edge, FanIn) and (by_source := held.get(edge.key)):
            count = sum(len(payloads) for payloads in by_source.values())
            missing = ", ".join(repr(source) for source in edge.sources if not by_source.get(source))
            sentences.append(
                f"the fan-in into {edge.target!r} still holds {count} message(s): no message from {missing}"
            )
    return sentences


# -------------------------------------------------------------------- routing


def route(graph: Graph, source: str, value: object, target: str | None, chosen: Sequence[tuple[str, ...]]) -> Routed:
    """Decide who receives a value that `source` sent.

    `chosen` holds, for each edge that leaves the source, the targets that its condition or selection
    accepted. If nobody receives the value, the result says why.
    """
    takers: list[str] = []
    joins: list[str] = []
    refused: list[str] = []
    edges = graph.outgoing.get(source, ())
    for edge, picks in zip(edges, chosen, strict=True):
        for pick in picks if target is None else [pick for pick in picks if pick == target]:
            # a fan-in will deliver a list, so its target must handle a list of such values
            if not graph.executors[pick].can_handle([value] if isinstance(edge, FanIn) else value):
                refused.append(pick)
            elif isinstance(edge, FanIn):
                joins.append(edge.key)
            else:
                takers.append(pick)
    if takers or joins:
        return Routed(tuple(takers), tuple(joins))
    return _explain_unroutable(graph, edges, source, value, target, refused)


def _explain_unroutable(
    graph: Graph, edges: Sequence[Edge], source: str, value: object, target: str | None, refused: Sequence[str]
) -> Routed:
    # The first three are mistakes in the graph or in the code. The last is a decision: a condition that
    # declines is an answer, so the message is dropped with a warning.
    what = f"{source!r} sent a {type(value).__name__}"
    targets = list(dict.fromkeys(t for edge in edges for t in edge.targets))
    if not edges:
        return Routed(missing=f"{what}, but no edge leaves {source!r}")
    if target is not None and target not in targets:
        return Routed(missing=f"{what} to {target!r}, but its edges lead only to {', '.join(map(repr, targets))}")
    if refused:
        accepted = [f"{id!r} accepts {' | '.join(map(describe, graph.executors[id].input_types))}" for id in refused]
        return Routed(missing=f"{what}, but no handler accepts it: {'; '.join(accepted)}")
    return Routed(declined=f"{what}, and every condition declined it: {'; '.join(e.describe() for e in edges)}")


# -------------------------------------------------------------------- merging

Outcomes = Mapping[str, Outcome]
"""By delivery."""

Routes = Mapping[str, Sequence[Routed]]
"""For each delivery, who receives each message it sent."""


class CommitDecision(msgspec.Struct, frozen=True):
    """What happens next in a run: a commit to be stored, and the plan of the superstep after it."""

    commit: Commit
    next: Plan | None  # None: the run stops here
    error: StepwellError | None = None  # raised once the commit is stored
    consumed: tuple[str, ...] = ()  # keys of the signals that caused the commit


def merge(
    graph: Graph, before: Checkpoint, current: Plan, outcomes: Outcomes, routes: Routes, pack: Pack, stamp: Stamp
) -> CommitDecision:
    """Return the commit of a superstep, and the plan of the next.

    Raises StateConflict, RoutingFailed or the RunError of a reducer; nothing has changed then.
    """
    # `outcomes` is in the order in which handlers finished; from here on only plan order counts
    ordered = [outcomes[delivery.id] for delivery in current.deliveries]
    early = [message for message in before.messages if message.reply is not None and message.is_held]
    ordered, early, warnings = release_answers(ordered, early) if early else (ordered, early, list[str]())
    warnings += _unused_responses(current, outcomes)
    asked: list[Request] = []
    saved: dict[str, Payload] = {}
    others: list[Outcome] = []  # those that change more
    for outcome in ordered:
        if outcome.requests:
            asked += outcome.requests
        if outcome.saved is not None:
            saved[outcome.executor] = outcome.saved  # the last outcome of an executor counts
        if outcome.children or outcome.tags or outcome.timers or outcome.withdrawn:
            others.append(outcome)
    children, tags, timers, withdrawn = _collect_changes(before, others) if others else _NO_CHANGES
    renamed: Sequence[str] = ()
    if asked:
        ordered, asked, renamed = _check_requests(before, ordered)
    messages, done, unreceived = _build_messages(ordered, routes)
    messages += early
    warnings += _explain_unreceived(graph, before, unreceived) if unreceived else []
    number = before.number + 1
    waiting = bool(asked) or (bool(before.requests) and _is_waiting(before, withdrawn))
    following, wake = plan(graph, number, messages, current.held), None
    if not following.deliveries:
        left = {key: child for key, child in {**before.children, **children}.items() if child is not None}
        wake = next_timer(change_timers(before.timers, timers), left) if left or timers or before.timers else None
        # What still waits may wait permanently: a warning says so
        warnings += [*waiting_joins(graph, following.held), *([] if waiting else _waiting_children(left))]
    commit = Commit(
        number=number,
        kind=CommitKind.SUPERSTEP,
        stamp=stamp,
        status=status_of(following, waiting=waiting, wake=wake),
        iteration=before.iteration + 1,
        since_input=before.since_input + 1,
        place=number,
        messages=tuple(messages),
        held=current.held if current.held is not before.held else None,  # by identity: see `plan`
        state=fold_writes(before.header.run_id, before.state, ordered, graph.reducers, pack),
        tags=tags,
        timers=timers,
        wake=wake,
        executors={id: new for id, new in saved.items() if new != before.executors.get(id)} if saved else {},
        asked=tuple(asked),
        closed=(*renamed, *withdrawn) if renamed or withdrawn else (),
        withdrawn=tuple(withdrawn),
        children=children,
        done=done,
        warnings=tuple(warnings),
    )
    return CommitDecision(commit, following)


def _unused_responses(current: Plan, outcomes: Outcomes) -> list[str]:
    """Return a warning for each response to a sub-workflow run that did not wait for it any more."""
    replies = [(d.id, d.reply) for d in current.deliveries if d.reply is not None and d.reply.child is not None]
    # A response that moves such a run says where it was left.
    return [unused_warning(reply.request_id) for id, reply in replies if reply.child not in outcomes[id].children]


def _is_waiting(before: Checkpoint, withdrawn: Collection[str]) -> bool:
    # Requests that handlers wait for end with the superstep
    return any(not request.is_awaited for id, request in before.requests.items() if id not in withdrawn)


_Changes = tuple[Mapping[str, Child | None], Mapping[str, str | None], TimerChanges, Mapping[str, None]]
_NO_CHANGES: _Changes = {}, {}, {}, {}


def _collect_changes(before: Checkpoint, outcomes: Sequence[Outcome]) -> _Changes:
    """Return what outcomes change of sub-workflow runs, tags and timers, and the requests that they take back."""
    tags: dict[str, str | None] = {}
    timers: dict[str, Mapping[str, str | None]] = {}
    withdrawn: dict[str, None] = {}
    for outcome in outcomes:
        tags.update(outcome.tags)
        if outcome.timers:
            timers[outcome.executor] = {**timers.get(outcome.executor, {}), **outcome.timers}
        withdrawn.update(dict.fromkeys(id for id in outcome.withdrawn if id in before.requests))
    return _collect_children([outcome.children for outcome in outcomes]), tags, timers, withdrawn


def _waiting_children(children: Mapping[str, Child]) -> list[str]:
    return [
        f"the sub-workflow run {child.run_id!r} of {child.executor!r} still waits for a response"
        for child in children.values()
        if child.wake is None
    ]


def _build_messages(
    ordered: Sequence[Outcome], routes: Routes
) -> tuple[list[RoutedMessage], tuple[Done, ...], list[Routed]]:
    """Return the messages in flight, the summaries of the outcomes, and the routes that lead to nobody."""
    messages: list[RoutedMessage] = []
    done: list[Done] = []
    unreceived: list[Routed] = []
    for outcome in ordered:
        ids: list[str] = []
        for sent, routed in zip(outcome.sent, routes[outcome.delivery], strict=True):
            # derived from the delivery, so that a second attempt sends messages with the same ids
            id = f"{outcome.delivery}.{len(ids)}"
            ids.append(id)
            messages.append(RoutedMessage(id, outcome.executor, sent.payload, sent.target, routed.takers, routed.joins))
            if not routed.takers and not routed.joins:
                unreceived.append(routed)
        asked = tuple([request.id for request in outcome.requests]) if outcome.requests else ()
        done.append(
            Done(
                outcome.delivery,
                outcome.executor,
                sent=tuple(ids),
                outputs=outcome.outputs,
                asked=asked,
                attempts=outcome.attempts,
                time=outcome.time,
                steps=outcome.steps,
            )
        )
    return messages, tuple(done), unreceived


def _explain_unreceived(graph: Graph, before: Checkpoint, unreceived: Sequence[Routed]) -> list[str]:
    """Return a warning for each message that nobody receives. Raises RoutingFailed if that is an error."""
    missing = [routed.missing for routed in unreceived if routed.missing]
    if missing and graph.on_unroutable == "fail":
        raise RoutingFailed(
            f"run {before.run_id!r}: {'; '.join(missing)}. Add the edge or the handler, or build the workflow "
            f'with on_unroutable="drop", and run it again',
            run_id=before.run_id,
        )
    declined = [routed.declined for routed in unreceived if routed.declined]
    return [f"dropped: {reason}" for reason in missing] + declined


def _check_requests(before: Checkpoint, ordered: Sequence[Outcome]) -> tuple[list[Outcome], list[Request], list[str]]:
    """Make the ids of requests unique where a sub-workflow's run uses one that this run already has.

    Such a request is known here as `id@child`; `inner_id` gives the id that the child knows. Returns the
    outcomes, all of their requests, and the other ids under which these may be listed since their outcomes were
    logged. Raises RunError if this run itself uses an id twice.
    """
    # The ids of this run's own requests are never changed: users chose them, or hold them already
    used = {*before.requests, *(r.id for outcome in ordered for r in outcome.requests if r.child is None)}
    open_requests = dict(before.requests)
    distinct: list[Outcome] = []
    asked: list[Request] = []
    listed: set[str] = set()
    for outcome in ordered:
        requests = []
        for request in outcome.requests:
            if request.child is not None:
                # In the order of the plan, whatever the order in which they returned
                request = replace(request, id=inner_id(request.id, request.child))
                listed |= {request.id, _rename(request).id}
                if request.id in used:
                    request = _rename(request)
            if request.id in open_requests:
                raise RunError(
                    f"{request.executor!r} made a request with the id {request.id!r}, which an open request of "
                    f"{open_requests[request.id].executor!r} already has; leave out request_id, or make it unique",
                    run_id=before.run_id,
                )
            used.add(request.id)
            open_requests[request.id] = request
            requests.append(request)
        distinct.append(replace(outcome, requests=tuple(requests)))
        asked += distinct[-1].requests
    return distinct, asked, sorted(listed - open_requests.keys())


def drop_repeated(outcome: Outcome, others: Iterable[Outcome]) -> Outcome:
    """Return an outcome without the requests of a sub-workflow run that another outcome of the superstep asks.

    Two responses to one such run may both find what it asks before its own superstep is committed.
    """
    if all(request.child is None for request in outcome.requests):
        return outcome
    asked = {_identity(r) for other in others for r in other.requests}
    return replace(outcome, requests=tuple(r for r in outcome.requests if _identity(r) not in asked))


def name_requests(outcome: Outcome, taken: Collection[str], listed: Mapping[str, Request]) -> Outcome:
    """Return an outcome under whose names its requests can be answered before the superstep commits.

    `taken` are the ids that are in use by others. Only the requests of a sub-workflow get another id;
    one that is `listed` keeps the name that it has there, whichever delivery listed it.
    """
    named = []
    for request in outcome.requests:
        same = None if request.child is None else find_same(request, listed)
        named.append(name_request(request, taken) if same is None else replace(request, id=listed[same].id))
    return replace(outcome, requests=tuple(named))


def name_request(request: Request, taken: Collection[str]) -> Request:
    """Return a request under an id that is not in use."""
    return request if request.child is None or request.id not in taken else _rename(request)


def find_same(request: Request, listed: Mapping[str, Request]) -> str | None:
    """Return the key of a request of a sub-workflow run, which may be listed under another id; None if it is not.

    Several deliveries of a superstep may drive one such run, and each finds all that the run asks.
    """
    same = _identity(request)
    return next((key for key, other in listed.items() if _identity(other) == same), None)


def _identity(request: Request) -> tuple[str | None, str, str]:
    return request.child, request.at, inner_id(request.id, request.child)


def _rename(request: Request) -> Request:
    return replace(request, id=f"{request.id}@{request.child}")


def _collect_children(moved: Sequence[Mapping[str, Child | None]]) -> dict[str, Child | None]:
    """Return where each sub-workflow run was left. If several responses moved one, its latest commit counts."""
    children: dict[str, Child | None] = {}
    for outcome in moved:
        for key, child in outcome.items():
            earlier = children.get(key, child)
            children[key] = (
                None
                if earlier is None or child is None
                else max(earlier, child, key=lambda candidate: candidate.number)
            )
    return children

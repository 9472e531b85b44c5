"""Merging: the outcomes of a superstep become one commit, in the order of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stepwell.errors import RoutingFailed, RunError, StepwellError
from stepwell.graph.graph import Graph
from stepwell.kernel.plan import plan, status_of, waiting_joins
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.child import Child
from stepwell.model.commit import Commit, CommitKind, Done, Stamp
from stepwell.model.message import Outcome, Plan, Routed, RoutedMessage
from stepwell.model.payload import Pack, Payload
from stepwell.model.request import Request
from stepwell.model.state import fold_writes

Routes = Mapping[str, Sequence[Routed]]
"""For each delivery, who receives each message it sent."""


class CommitDecision(msgspec.Struct, frozen=True):
    """What happens next in a run: a commit to be stored, and the plan of the superstep after it."""

    commit: Commit
    next: Plan | None  # None: the run stops here
    error: StepwellError | None = None  # raised once the commit is stored
    consumed: tuple[str, ...] = ()  # keys of the signals that caused the commit


def merge(
    graph: Graph,
    before: Checkpoint,
    current: Plan,
    outcomes: Mapping[str, Outcome],
    routes: Routes,
    pack: Pack,
    stamp: Stamp,
) -> CommitDecision:
    """Return the commit of a superstep, and the plan of the next.

    Raises StateConflict, RoutingFailed or the RunError of a reducer; nothing has changed then.
    """
    # `outcomes` is in the order in which handlers finished; from here on only plan order counts
    ordered = _make_ids_distinct(before, [outcomes[delivery.id] for delivery in current.deliveries])
    warnings = _check_routes(graph, before, ordered, routes)
    messages, done = _build_messages(ordered, routes)
    number = before.number + 1
    asked = _collect_requests(before, ordered)
    following = plan(graph, number, messages, current.held)
    children = _collect_children(ordered)
    # With nothing to deliver next, what still waits may wait permanently: a warning says so
    if not following.deliveries:
        warnings += waiting_joins(graph, following.held)
        if not before.requests and not asked:
            warnings += _find_abandoned_children({**before.children, **children})
    commit = Commit(
        number=number,
        kind=CommitKind.SUPERSTEP,
        stamp=stamp,
        status=status_of(following, waiting=bool(before.requests or asked)),
        iteration=before.iteration + 1,
        since_input=before.since_input + 1,
        place=number,
        messages=messages,
        held=current.held if current.held is not before.held else None,  # by identity: see `plan`
        state=fold_writes(before.run_id, before.state, ordered, graph.reducers, pack),
        executors=_collect_changed_state(before, ordered),
        asked=asked,
        children=children,
        done=done,
        warnings=tuple(warnings),
    )
    return CommitDecision(commit, following)


def _make_ids_distinct(before: Checkpoint, ordered: list[Outcome]) -> list[Outcome]:
    """Make the ids of requests unique where a sub-workflow's run uses one that this run already has.

    Such a request is known here as `id@child`; `inner_id` gives the id that the child knows.
    """
    if not any(request.child for outcome in ordered for request in outcome.requests):
        return ordered
    # The ids of this run's own requests are never changed: users chose them, or hold them already
    used = {*before.requests, *(r.id for outcome in ordered for r in outcome.requests if r.child is None)}
    distinct = []
    for outcome in ordered:
        requests = []
        for request in outcome.requests:
            own = request.child is None or request.id not in used
            requests.append(request if own else replace(request, id=f"{request.id}@{request.child}"))
            used.add(requests[-1].id)
        distinct.append(replace(outcome, requests=tuple(requests)))
    return distinct


def inner_id(request_id: str, child: str) -> str:
    """Return the id that a sub-workflow's run itself uses for a request of this run."""
    return request_id.removesuffix(f"@{child}")


def _find_abandoned_children(children: Mapping[str, Child | None]) -> list[str]:
    """Describe each sub-workflow run that still waits although this run has nothing left to do."""
    waiting = [child for child in children.values() if child is not None]
    return [
        f"the sub-workflow run {child.run_id!r} of {child.executor!r} still waits for a response" for child in waiting
    ]


def _collect_requests(before: Checkpoint, ordered: Sequence[Outcome]) -> tuple[Request, ...]:
    new = [request for outcome in ordered for request in outcome.requests]
    asked = dict(before.requests) if new else {}
    for request in new:
        if request.id in asked:
            raise RunError(
                f"{request.executor!r} made a request with the id {request.id!r}, which an open request of "
                f"{asked[request.id].executor!r} already has; leave out request_id, or make it unique",
                run_id=before.run_id,
            )
        asked[request.id] = request
    return tuple(new)


def _collect_children(ordered: Sequence[Outcome]) -> dict[str, Child | None]:
    """Return where each sub-workflow run was left. If several responses moved one, its latest commit counts."""
    children: dict[str, Child | None] = {}
    for outcome in ordered:
        for key, child in outcome.children.items():
            earlier = children.get(key, child)
            children[key] = (
                None
                if earlier is None or child is None
                else max(earlier, child, key=lambda candidate: candidate.number)
            )
    return children


def _build_messages(ordered: Sequence[Outcome], routes: Routes) -> tuple[tuple[RoutedMessage, ...], tuple[Done, ...]]:
    messages: list[RoutedMessage] = []
    done: list[Done] = []
    for outcome in ordered:
        ids = []
        for n, (sent, routed) in enumerate(zip(outcome.sent, routes[outcome.delivery], strict=True)):
            # derived from the delivery, so that a second attempt sends messages with the same ids
            ids.append(f"{outcome.delivery}.{n}")
            messages.append(
                RoutedMessage(ids[-1], outcome.executor, sent.payload, sent.target, routed.takers, routed.joins)
            )
        asked = tuple([request.id for request in outcome.requests])
        done.append(Done(outcome.delivery, outcome.executor, tuple(ids), outcome.outputs, asked, outcome.attempts))
    return tuple(messages), tuple(done)


def _collect_changed_state(before: Checkpoint, ordered: Sequence[Outcome]) -> dict[str, Payload]:
    """Return the state of the executors that ran, if it changed. The last outcome of an executor counts."""
    last = {outcome.executor: outcome.saved for outcome in ordered}
    return {id: saved for id, saved in last.items() if saved is not None and saved != before.executors.get(id)}


def _check_routes(graph: Graph, before: Checkpoint, ordered: Sequence[Outcome], routes: Routes) -> list[str]:
    """Return a warning for each message that nobody receives. Raises RoutingFailed if that is an error."""
    missing: list[str] = []
    declined: list[str] = []
    for outcome in ordered:
        for routed in routes[outcome.delivery]:
            missing += [routed.missing] if routed.missing else []
            declined += [routed.declined] if routed.declined else []
    if missing and graph.on_unroutable == "fail":
        raise RoutingFailed(
            f"run {before.run_id!r}: {'; '.join(missing)}. Add the edge or the handler, or build the workflow "
            f'with on_unroutable="drop", and run it again',
            run_id=before.run_id,
        )
    return [f"dropped: {reason}" for reason in missing] + declined

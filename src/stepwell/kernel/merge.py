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
from stepwell.model.payload import Pack
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
    ordered = [outcomes[delivery.id] for delivery in current.deliveries]
    if [outcome for outcome in ordered if outcome.requests]:
        ordered = _check_requests(before, ordered)
    asked = tuple([request for outcome in ordered for request in outcome.requests])
    moved = [outcome.children for outcome in ordered if outcome.children]
    children = _collect_children(moved) if moved else {}
    messages, done, unreceived = _build_messages(ordered, routes)
    warnings = _explain_unreceived(graph, before, unreceived) if unreceived else []
    number, waiting = before.number + 1, bool(before.requests or asked)
    following = plan(graph, number, messages, current.held)
    # With nothing to deliver next, what still waits may wait permanently: a warning says so
    if not following.deliveries:
        warnings += waiting_joins(graph, following.held)
        if not waiting:
            warnings += _find_abandoned_children({**before.children, **children})
    # the last outcome of an executor counts
    saved = {outcome.executor: outcome.saved for outcome in ordered}
    commit = Commit(
        number=number,
        kind=CommitKind.SUPERSTEP,
        stamp=stamp,
        status=status_of(following, waiting=waiting),
        iteration=before.iteration + 1,
        since_input=before.since_input + 1,
        place=number,
        messages=messages,
        held=current.held if current.held is not before.held else None,  # by identity: see `plan`
        state=fold_writes(before.header.run_id, before.state, ordered, graph.reducers, pack),
        executors={id: new for id, new in saved.items() if new is not None and new != before.executors.get(id)},
        asked=asked,
        children=children,
        done=done,
        warnings=tuple(warnings),
    )
    return CommitDecision(commit, following)


def _build_messages(
    ordered: Sequence[Outcome], routes: Routes
) -> tuple[tuple[RoutedMessage, ...], tuple[Done, ...], list[Routed]]:
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
        asked = tuple([request.id for request in outcome.requests])
        done.append(Done(outcome.delivery, outcome.executor, tuple(ids), outcome.outputs, asked, outcome.attempts))
    return tuple(messages), tuple(done), unreceived


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


def _check_requests(before: Checkpoint, ordered: Sequence[Outcome]) -> list[Outcome]:
    """Make the ids of requests unique where a sub-workflow's run uses one that this run already has.

    Such a request is known here as `id@child`; `inner_id` gives the id that the child knows. Raises RunError
    if this run itself uses an id twice.
    """
    # The ids of this run's own requests are never changed: users chose them, or hold them already
    used = {*before.requests, *(r.id for outcome in ordered for r in outcome.requests if r.child is None)}
    open_requests = dict(before.requests)
    distinct = []
    for outcome in ordered:
        requests = []
        for request in outcome.requests:
            if request.child is not None and request.id in used:
                request = replace(request, id=f"{request.id}@{request.child}")
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

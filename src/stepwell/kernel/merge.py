"""Many outcomes become one commit, in the order of the plan and never of the race."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stepwell.errors import RoutingFailed, RunError
from stepwell.graph.graph import Graph
from stepwell.kernel.plan import plan, status_of, waiting_joins
from stepwell.model.payload import Pack, Payload
from stepwell.model.request import Request
from stepwell.model.state import fold
from stepwell.model.superstep import (
    Checkpoint,
    Child,
    Commit,
    CommitKind,
    Done,
    Outcome,
    Plan,
    Routed,
    RoutedMessage,
    Stamp,
)

Routes = Mapping[str, Sequence[Routed]]
"""For each delivery, who takes each message it sent."""


class Merged(msgspec.Struct, frozen=True):
    commit: Commit
    next: Plan


def merge(
    graph: Graph,
    before: Checkpoint,
    current: Plan,
    outcomes: Mapping[str, Outcome],
    routes: Routes,
    pack: Pack,
    stamp: Stamp,
) -> Merged:
    """The commit of a superstep, and the plan of the next.

    Raises StateConflict, RoutingFailed or the error of a reducer, and then nothing has changed.
    """
    ordered = _make_ids_distinct(before, [outcomes[delivery.id] for delivery in current.deliveries])
    warnings = _check_routes(graph, before, ordered, routes)
    messages, done = _build_messages(ordered, routes)
    number = before.number + 1
    asked = _collect_requests(before, ordered)
    following = plan(graph, number, messages, current.held)
    children = _collect_children(ordered)
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
        held=current.held if current.held is not before.held else None,
        state=fold(before.run_id, before.state, ordered, graph.reducers, pack),
        executors=_collect_changed_state(before, ordered),
        asked=asked,
        children=children,
        done=done,
        warnings=tuple(warnings),
    )
    return Merged(commit, following)


def _make_ids_distinct(before: Checkpoint, ordered: list[Outcome]) -> list[Outcome]:
    """Runs inside this one may ask under an id that is in use out here: then its id out here says who asks, too."""
    if not any(request.child for outcome in ordered for request in outcome.requests):
        return ordered
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
    """The id under which a run inside asks what is asked out here under an id."""
    return request_id.removesuffix(f"@{child}")


def _find_abandoned_children(children: Mapping[str, Child | None]) -> list[str]:
    """For each run inside that waits, in a run that neither asks nor does anything any more: that it does, in words."""
    waiting = [child for child in children.values() if child is not None]
    return [f"run {child.run_id!r} inside {child.executor!r} still waits: nobody answered it" for child in waiting]


def _collect_requests(before: Checkpoint, ordered: Sequence[Outcome]) -> tuple[Request, ...]:
    new = [request for outcome in ordered for request in outcome.requests]
    asked = dict(before.requests) if new else {}
    for request in new:
        if request.id in asked:
            raise RunError(
                f"{request.executor!r} asked with the request id {request.id!r}, under which "
                f"{asked[request.id].executor!r} is already asking; leave request_id out, or make it unique",
                run_id=before.run_id,
            )
        asked[request.id] = request
    return tuple(new)


def _collect_children(ordered: Sequence[Outcome]) -> dict[str, Child | None]:
    """Where the runs inside were left: each where it came furthest, if several answers moved it on."""
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
            ids.append(f"{outcome.delivery}.{n}")
            messages.append(
                RoutedMessage(ids[-1], outcome.executor, sent.payload, sent.target, routed.takers, routed.joins)
            )
        asked = tuple([request.id for request in outcome.requests])
        done.append(Done(outcome.delivery, outcome.executor, tuple(ids), outcome.outputs, asked, outcome.attempts))
    return tuple(messages), tuple(done)


def _collect_changed_state(before: Checkpoint, ordered: Sequence[Outcome]) -> dict[str, Payload]:
    """The state of the executors that ran, where it is not what it was."""
    last = {outcome.executor: outcome.saved for outcome in ordered}
    return {id: saved for id, saved in last.items() if saved is not None and saved != before.executors.get(id)}


def _check_routes(graph: Graph, before: Checkpoint, ordered: Sequence[Outcome], routes: Routes) -> list[str]:
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
    return [f"dropped: {words}" for words in missing] + declined

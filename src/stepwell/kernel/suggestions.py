"""Suggestions: what a graph has that the missing part of a stored run may have become. Pure.

A rename is the commonest reason why new code cannot resume a run. Nobody recorded it, so it is
guessed: a new executor that can do what the missing one has to do, stands where it stood, or has
nearly its name. A suggestion is a step of a `Migration`, to be read and copied by a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from stepwell.errors import CodecError
from stepwell.graph.edges import FanIn, fan_in_of
from stepwell.graph.executor import Executor, persistent_names
from stepwell.graph.graph import Graph
from stepwell.model.checkpoint import Checkpoint

_LIKELY = 0.55  # of names and neighbours that agree; below it nothing is suggested


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a missing part may have become, and the step of a migration that says so."""

    missing: str
    present: str
    step: str  # a call of a method of `Migration`

    def describe(self, version: int) -> str:
        """Return the suggestion as a sentence, with the migration that leads to that version."""
        return f"{self.missing} may have become {self.present}: Migration({version}).{self.step}"


def suggest_steps(graph: Graph, at: Checkpoint) -> list[Suggestion]:
    """Return what this graph has that parts of a run may have become, if it lacks them."""
    # An executor with a record of the graph in the state, as that of named agents, would still object.
    if any(executor.objections(at.state) for executor in graph.executors.values()):
        return []
    renamed = _match_executors(graph, at)
    return [
        *(
            Suggestion(f"executor {old!r}", repr(new), f"rename_executor({old!r}, {new!r})")
            for old, new in renamed.items()
        ),
        *_suggest_fan_ins(graph, at, renamed),
        *_suggest_attributes(graph, at),
    ]


def _match_executors(graph: Graph, at: Checkpoint) -> dict[str, str]:
    """Return for each missing executor that the run needs the new one that it may have become."""
    stored = [str(id) for id in at.header.signature.get("executors", ())]
    missing = [id for id in stored if id not in graph.executors and _is_needed(id, at)]
    candidates = [id for id in graph.executors if id not in stored]
    scores = {
        (old, new): _compare(old, new, graph, at)
        for old in missing
        for new in candidates
        if _can_replace(graph.executors[new], old, at)
    }
    matches: dict[str, str] = {}
    for (old, new), score in sorted(scores.items(), key=lambda item: -item[1]):
        # Where exactly one is gone and one that can replace it is new, names need not be alike.
        is_only_choice = len(scores) == 1 and len(missing) == 1
        if old not in matches and new not in matches.values() and (score >= _LIKELY or is_only_choice):
            matches[old] = new
    return matches


def _is_needed(id: str, at: Checkpoint) -> bool:
    return (
        any(id in message.takers or any(_joins(key, id) for key in message.joins) for message in at.messages)
        or any(request.executor == id for request in at.requests.values())
        or any(child.executor == id for child in at.children.values())
        or id in at.timers
        or any(_joins(key, id) for key in at.held)
        or any(id in key.split("/") for key in at.state)
        or bool(_saved_names(id, at))
    )


def _joins(key: str, id: str) -> bool:
    fan_in = fan_in_of(key)
    return fan_in is not None and (id == fan_in.target or id in fan_in.sources)


def _saved_names(id: str, at: Checkpoint) -> list[str]:
    names: list[str] = []
    with suppress(CodecError):  # what cannot be read is reported elsewhere
        names = [str(name) for name in at.executors[id].open()] if id in at.executors else []
    return names


def _can_replace(executor: Executor, old: str, at: Checkpoint) -> bool:
    """Return whether an executor accepts the messages and answers that the run has for a missing one."""
    with suppress(CodecError):
        messages = [m.payload.open() for m in at.messages if old in m.takers and m.reply is None and m.timer is None]
        questions = [request.payload.open() for request in at.requests.values() if request.executor == old]
        names = at.timers.get(old, ())
        if not all(executor.can_handle(message) for message in messages) or not all(
            executor._handler_table.choose_timer_handler(name) for name in names
        ):
            return False
        return all(executor._handler_table.response_types(question) for question in questions)
    return True


def _compare(old: str, new: str, graph: Graph, at: Checkpoint) -> float:
    """Return how well two executors agree: in their names, neighbours and saved attributes, from 0 to 1."""
    names = SequenceMatcher(None, old.lower(), new.lower()).ratio()
    before = {str(edge).replace(old, new) for edge in at.header.signature.get("edges", ()) if old in str(edge)}
    after = {edge.describe() for edge in graph.edges if new in (*edge.sources, *edge.targets)}
    shares = [names, len(before & after) / len(before | after) if before | after else names]
    if saved := _saved_names(old, at):
        declared = persistent_names(type(graph.executors[new]))
        shares.append(sum(name in declared for name in saved) / len(saved))
    return max(sum(shares) / len(shares), names)


def _suggest_fan_ins(graph: Graph, at: Checkpoint, renamed: Mapping[str, str]) -> Iterator[Suggestion]:
    present = [edge for edge in graph.edges if isinstance(edge, FanIn)]
    keys = dict.fromkeys([*at.held, *(key for message in at.messages for key in message.joins)])
    for old in filter(None, map(fan_in_of, keys)):
        sources = [renamed.get(source, source) for source in old.sources]
        target = renamed.get(old.target, old.target)
        if FanIn(tuple(sources), target) in present:  # there already, or a rename is all it takes
            continue
        likely = [edge for edge in present if edge.target == target or set(edge.sources) & set(sources)]
        if likely:
            new = max(likely, key=lambda edge: len(set(edge.sources) & set(sources)) + (edge.target == target))
            to_target = "" if new.target == target else f", to_target={new.target!r}"
            step = f"change_fan_in({sources!r}, {target!r}, to_sources={list(new.sources)!r}{to_target})"
            yield Suggestion(f"the fan-in {old.key!r}", repr(new.key), step)


def _suggest_attributes(graph: Graph, at: Checkpoint) -> Iterator[Suggestion]:
    """Suggest what saved attributes of executors may be called now."""
    for id in at.executors:
        executor: Any = graph.executors.get(id)
        if executor is None:
            continue
        saved, declared = _saved_names(id, at), persistent_names(type(executor))
        free = [name for name in declared if name not in saved]
        for name in [name for name in saved if name not in declared]:
            close = get_close_matches(name, free, n=1) or (free if len(free) == 1 else [])
            if close:
                renamed = f"{close[0]!r} if name == {name!r} else name"
                change = f"lambda state: {{{renamed}: value for name, value in state.items()}}"
                yield Suggestion(
                    f"{name!r} of executor {id!r}", repr(close[0]), f"change_executor_state({id!r}, {change})"
                )

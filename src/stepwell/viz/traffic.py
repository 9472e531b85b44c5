"""Which arrows of a diagram the messages of a run went along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stepwell.graph.edges import FanIn, fan_in_of
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit
from stepwell.model.message import RoutedMessage
from stepwell.viz.diagram import Arrow, Diagram
from stepwell.viz.progress import Progress

ArrowState = Literal["taken", "current"]
Ends = tuple[str, str]  # source and target; a fan-in has its key, as messages name it


@dataclass(frozen=True, slots=True)
class Traffic:
    """The ends of the arrows that messages went along, and of those with messages on their way."""

    taken: frozenset[Ends] = frozenset()
    current: frozenset[Ends] = frozenset()

    def states(self, diagram: Diagram, progress: Progress | None = None) -> dict[Arrow, ArrowState]:
        """Return the arrows that are known to have been taken.

        A message is on its way until its receiver has handled it or failed, which `progress` knows first.
        Of several arrows between the same two nodes none is: a message does not say which one it took.
        """
        keys = _fan_in_keys(diagram)
        ends = {
            arrow: (keys.get(arrow.source, arrow.source), keys.get(arrow.target, arrow.target))
            for arrow in diagram.arrows
        }
        # All loops of a node are drawn as one arrow, so that one was taken.
        alike = Counter(pair for pair in ends.values() if pair[0] != pair[1])
        states: dict[Arrow, ArrowState] = {}
        for arrow, pair in ends.items():
            if alike[pair] <= 1 and pair in self.taken | self.current:
                fan_in = fan_in_of(pair[1])
                state = None if progress is None else progress.state(arrow.target if fan_in is None else fan_in.target)
                has_come = state in ("failed", "waiting", "ran")
                states[arrow] = "current" if pair in self.current and not has_come else "taken"
        return states


def traffic_of(checkpoint: Checkpoint, commits: Iterable[Commit]) -> Traffic:
    """Return the traffic of a run at a checkpoint, given the commits that led there."""
    taken = {ends for commit in commits for ends in _ends(commit.messages or ())}
    current = set(_ends(checkpoint.messages))
    fired = {
        key: fan_in
        for _, key in taken | current
        if (fan_in := fan_in_of(key)) and _is_complete(fan_in, taken | current)
    }
    taken |= {(key, fan_in.target) for key, fan_in in fired.items()}
    # What completes a fan-in is delivered to its target in the superstep that comes next.
    current |= {(key, fired[key].target) for _, key in current if key in fired}
    return Traffic(frozenset(taken), frozenset(current))


def _ends(messages: Iterable[RoutedMessage]) -> Iterable[Ends]:
    for message in messages:
        if message.source is not None:
            yield from ((message.source, end) for end in (*message.takers, *message.joins))


def _is_complete(fan_in: FanIn, ends: set[Ends]) -> bool:
    return all((source, fan_in.key) in ends for source in fan_in.sources)


def _fan_in_keys(diagram: Diagram) -> dict[str, str]:
    """Return the keys of the fan-ins of a diagram by the ids of their nodes."""
    keys: dict[str, str] = {}
    for node in diagram.nodes:
        if node.kind == "fan-in":
            sources = dict.fromkeys(arrow.source for arrow in diagram.arrows if arrow.target == node.id)
            target = next(arrow.target for arrow in diagram.arrows if arrow.source == node.id)
            keys[node.id] = FanIn(tuple(sources), target).key
    return keys

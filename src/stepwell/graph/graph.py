"""The frozen graph of a workflow, and the signature by which a stored run recognises it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stepwell.graph.edges import Direct, Edge, Select, Switch
from stepwell.graph.executor import Executor
from stepwell.model.state import Reducer

OutputKind = Literal["output", "intermediate"]
OnUnroutable = Literal["fail", "drop"]


@dataclass(frozen=True, slots=True)
class Graph:
    """The definition of a workflow. The first run uses the `executors` themselves, every other run clones of them."""

    start: str
    executors: Mapping[str, Executor]
    edges: tuple[Edge, ...]
    # None: every yielded value is an output
    outputs: Mapping[str, OutputKind] | None = None
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    on_unroutable: OnUnroutable = "fail"
    # These are computed once, because every message needs them
    outgoing: Mapping[str, tuple[Edge, ...]] = field(init=False)
    # by executor: the targets of each edge that leaves it; of those whose edges have no conditions
    fixed_targets: Mapping[str, tuple[tuple[str, ...], ...]] = field(init=False)
    # routing calls a user's function, which may take its time
    has_conditions: bool = field(init=False)

    def __post_init__(self) -> None:
        leaving: dict[str, list[Edge]] = {id: [] for id in self.executors}
        for edge in self.edges:
            for source in edge.sources:
                leaving.setdefault(source, []).append(edge)
        object.__setattr__(self, "outgoing", {source: tuple(edges) for source, edges in leaving.items()})
        fixed = {
            source: tuple(edge.targets for edge in edges)
            for source, edges in leaving.items()
            if not any(map(_calls_user_code, edges))
        }
        object.__setattr__(self, "fixed_targets", fixed)
        object.__setattr__(self, "has_conditions", any(map(_calls_user_code, self.edges)))

    def output_kind(self, executor_id: str) -> OutputKind | None:
        """Return how values that an executor yields are emitted; None if they are not."""
        return "output" if self.outputs is None else self.outputs.get(executor_id)


def _calls_user_code(edge: Edge) -> bool:
    return isinstance(edge, (Switch, Select)) or (isinstance(edge, Direct) and edge.condition is not None)


def signature(graph: Graph) -> dict[str, Any]:
    """Return what identifies a graph: where messages can go, by declared names.

    Modules, classes and the code of handlers and conditions are not part of it, so they can move and
    change. The order within an edge is, because deliveries follow it; the order of the edges is not.
    """
    return {
        "start": graph.start,
        "executors": sorted(graph.executors),
        "edges": sorted(edge.describe() for edge in graph.edges),
    }


def signature_hash(signature: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(signature, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def default_name(signature: Mapping[str, Any]) -> str:
    """Return the name of a workflow that was built without one."""
    return f"workflow-{signature_hash(signature)[:12]}"


def is_default_name(name: str) -> bool:
    return re.fullmatch(r"workflow-[0-9a-f]{12}", name) is not None


def describe_differences(stored: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return what changed between two signatures, one sentence each; a migrated run stores them in its history."""
    sentences = []
    if stored.get("start") != present.get("start"):
        sentences.append(f"the start was {stored.get('start')!r} and is now {present.get('start')!r}")
    for part, word in (("executors", "executor"), ("edges", "edge")):
        before, after = stored.get(part, ()), present.get(part, ())
        sentences += [f"{word} {name!r} is gone" for name in before if name not in after]
        sentences += [f"{word} {name!r} is new" for name in after if name not in before]
    return sentences

"""What a built workflow says of itself: its executors, who of them yields outputs, and all of it as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from stepwell.graph.edges import Edge
from stepwell.graph.executor import Executor
from stepwell.graph.graph import Graph, signature
from stepwell.graph.subworkflow import Nesting


class DescribedGraph:
    """The part of a workflow that describes its graph."""

    _graph: Graph

    @property
    def start_executor_id(self) -> str:
        return self._graph.start

    @property
    def executors(self) -> Mapping[str, Executor]:
        """The executors as they were at `build()`. They are never called: each run has its own instances."""
        return MappingProxyType(dict(self._graph.executors))

    @property
    def edges(self) -> tuple[Edge, ...]:
        return self._graph.edges

    @property
    def graph_signature(self) -> dict[str, Any]:
        """What identifies the graph: start, executors and edges, by their declared names."""
        return signature(self._graph)

    @property
    def input_types(self) -> list[object]:
        return self._graph.executors[self._graph.start].input_types

    @property
    def output_types(self) -> list[object]:
        return list(dict.fromkeys(t for e in self._graph.executors.values() for t in e.workflow_output_types))

    def get_start_executor(self) -> Executor:
        """Return the executor that receives the input."""
        return self._graph.executors[self._graph.start]

    def get_executors_list(self) -> list[Executor]:
        """Return all executors."""
        return list(self._graph.executors.values())

    def get_output_executors(self) -> list[Executor]:
        """Return the executors whose outputs are part of the result: all, unless `output_from` names some."""
        return [executor for id, executor in self._graph.executors.items() if self.is_terminal_executor(id)]

    def get_intermediate_executors(self) -> list[Executor]:
        """Return the executors whose outputs are intermediate."""
        return [executor for id, executor in self._graph.executors.items() if self.is_intermediate_executor(id)]

    def is_terminal_executor(self, executor_id: str) -> bool:
        """Return whether what an executor yields is part of the result."""
        return self._graph.output_kind(executor_id) == "output"

    def is_intermediate_executor(self, executor_id: str) -> bool:
        """Return whether what an executor yields is an intermediate output."""
        return self._graph.output_kind(executor_id) == "intermediate"

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as plain data, sub-workflows included."""
        chosen = self._graph.outputs is not None
        return {
            "start_executor_id": self._graph.start,
            "executors": {id: _describe(executor) for id, executor in self._graph.executors.items()},
            "edges": [edge.describe() for edge in self._graph.edges],
            "output_executors": [executor.id for executor in self.get_output_executors()] if chosen else None,
            "intermediate_executors": [e.id for e in self.get_intermediate_executors()] if chosen else None,
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict())


def _describe(executor: Executor) -> dict[str, Any]:
    inner = executor.workflow if isinstance(executor, Nesting) else None
    nested = {"workflow": inner.to_dict()} if isinstance(inner, DescribedGraph) else {}
    return {**executor.to_dict(), **nested}

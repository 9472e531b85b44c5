"""Say a workflow; `build()` freezes it, or says everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

from ..core.errors import DefinitionError
from ..core.state import Reducer
from ..durable.contract import CheckpointStorage
from ..graph.edges import Case, Condition, Default, Direct, Edge, FanIn, FanOut, Select, Selection, Switch, name_of
from ..graph.graph import Graph, OnUnroutable, OutputKind
from ..graph.validate import problems
from .nodes import ExecutorLike, Node, frozen, node_of
from .storages import StorageLike, storage_of
from .workflow import Workflow

DEFAULT_MAX_ITERATIONS = 100

OutputsFrom = Sequence[ExecutorLike] | Literal["all"] | None
OthersFrom = Sequence[ExecutorLike] | Literal["all", "all_other"] | None


class WorkflowBuilder:
    """Says a workflow: executors, and the edges between them.

    Wherever an executor is expected, an instance, a class, a factory, or the id of one that stands
    elsewhere in the same builder will do.
    """

    def __init__(
        self,
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        name: str | None = None,
        description: str | None = None,
        *,
        start_executor: ExecutorLike | None = None,
        checkpoint_storage: StorageLike | None = None,
        output_from: OutputsFrom = None,
        intermediate_output_from: OthersFrom = None,
        reducers: Mapping[str, Reducer] | None = None,
        on_unroutable: OnUnroutable = "fail",
    ) -> None:
        self._name, self._description = name, description
        self._max_iterations = max_iterations
        self._storage: CheckpointStorage | None = storage_of(checkpoint_storage)
        self._output_from, self._intermediate_from = output_from, intermediate_output_from
        self._reducers = dict(reducers or {})
        self._on_unroutable = on_unroutable
        self._nodes: dict[str, Node] = {}
        self._by_object: dict[int, Node] = {}
        self._kept: list[object] = []  # what `_by_object` names by identity must not be collected
        self._edges: list[Edge] = []
        self._problems: list[str] = []
        self._start: str | None = None
        if start_executor is not None:
            self.set_start_executor(start_executor)

    def set_start_executor(self, executor: ExecutorLike) -> Self:
        """Where the input goes."""
        self._start = self._id(executor)
        return self

    def with_checkpointing(self, checkpoint_storage: StorageLike) -> Self:
        """Commit every run to this storage, unless `run` is given another."""
        self._storage = storage_of(checkpoint_storage)
        return self

    def set_max_iterations(self, max_iterations: int) -> Self:
        """How many supersteps a run may take since the last message from outside."""
        self._max_iterations = max_iterations
        return self

    def add_edge(self, source: ExecutorLike, target: ExecutorLike, condition: Condition | None = None) -> Self:
        """What `source` sends goes to `target`, if the condition holds for it. The condition may be async."""
        return self._add(Direct(self._id(source), self._id(target), condition))

    def add_chain(self, executors: Sequence[ExecutorLike]) -> Self:
        """Edges from each to the next."""
        ids = [self._id(executor) for executor in executors]
        if len(ids) < 2:
            self._problems.append(f"a chain needs at least two executors, not {len(ids)}")
        for source, target in zip(ids, ids[1:], strict=False):
            self._add(Direct(source, target))
        return self

    def add_fan_out_edges(self, source: ExecutorLike, targets: Sequence[ExecutorLike]) -> Self:
        """What `source` sends goes to every target."""
        return self._add(FanOut(self._id(source), self._ids(targets, f"the fan-out from {self._id(source)!r}")))

    def add_fan_in_edges(self, sources: Sequence[ExecutorLike], target: ExecutorLike) -> Self:
        """Once each source has sent something, `target` gets all of it as one list, in the order of the sources."""
        return self._add(FanIn(self._ids(sources, f"the fan-in into {self._id(target)!r}"), self._id(target)))

    def add_switch_case_edge_group(self, source: ExecutorLike, cases: Sequence[Case | Default]) -> Self:
        """What `source` sends goes to the first case that holds, else to the default."""
        id = self._id(source)
        ways = tuple((case.condition, self._id(case.target)) for case in cases if isinstance(case, Case))
        defaults = [self._id(case.target) for case in cases if isinstance(case, Default)]
        if len(defaults) != 1:
            self._problems.append(
                f"the switch from {id!r} has {len(defaults) or 'no'} Default(...); it needs exactly one"
            )
        if not ways:
            self._problems.append(f"the switch from {id!r} has no Case(...)")
        return self._add(Switch(id, ways, defaults[0])) if defaults else self

    def add_multi_selection_edge_group(
        self, source: ExecutorLike, targets: Sequence[ExecutorLike], selection_func: Selection
    ) -> Self:
        """What `source` sends goes to those targets whose ids `selection_func(message, target_ids)` returns."""
        id = self._id(source)
        return self._add(Select(id, self._ids(targets, f"the selection from {id!r}"), selection_func))

    def build(self) -> Workflow:
        """The immutable definition. Raises DefinitionError with every problem at once."""
        nodes = {id: frozen(node) for id, node in self._nodes.items()}
        executors = {id: node.pattern for id, node in nodes.items()}
        found = [*self._problems, *problems(self._start, executors, self._edges)]
        outputs = self._outputs(found)
        for key, reducer in self._reducers.items():
            if not callable(reducer):
                found.append(f"the reducer of state[{key!r}] is {reducer!r}, which cannot be called")
        if not isinstance(self._max_iterations, int) or self._max_iterations < 1:
            found.append(f"max_iterations must be at least 1, not {self._max_iterations!r}")
        if self._on_unroutable not in ("fail", "drop"):
            found.append(f'on_unroutable must be "fail" or "drop", not {self._on_unroutable!r}')
        if found or self._start is None:
            raise DefinitionError(list(dict.fromkeys(found)))
        graph = Graph(self._start, executors, tuple(self._edges), outputs, self._reducers, self._on_unroutable)
        return Workflow(graph, nodes, self._name, self._description, self._max_iterations, self._storage)

    def _add(self, edge: Edge) -> Self:
        self._edges.append(edge)
        return self

    def _ids(self, given: Sequence[ExecutorLike], what: str) -> tuple[str, ...]:
        if not given:
            self._problems.append(f"{what} names no executor")
        return tuple(self._id(one) for one in given)

    def _id(self, given: ExecutorLike) -> str:
        if isinstance(given, str):
            return given
        known = self._by_object.get(id(given))
        if known is None:
            try:
                known = node_of(given)
            except DefinitionError as error:
                self._problems += error.problems
                return getattr(given, "__name__", None) or repr(given)
            self._by_object[id(given)] = known
            self._kept.append(given)
            if known.id in self._nodes:
                self._problems.append(f"duplicate executor: two different executors are called {known.id!r}")
            else:
                self._nodes[known.id] = known
        return known.id

    def _outputs(self, found: list[str]) -> dict[str, OutputKind] | None:
        """Whose yields are told as what; None: every yield is an output."""
        if self._output_from is None and self._intermediate_from is None:
            return None
        chosen = self._named(self._output_from, "output_from", found)
        if self._intermediate_from == "all_other":
            others = [id for id in self._nodes if id not in chosen]
        else:
            others = self._named(self._intermediate_from, "intermediate_output_from", found)
        for id in chosen:
            if id in others:
                found.append(f"{id!r} stands in output_from and in intermediate_output_from")
        return {**dict.fromkeys(others, "intermediate"), **dict.fromkeys(chosen, "output")}

    def _named(self, given: Any, what: str, found: list[str]) -> list[str]:
        if given is None:
            return []
        if isinstance(given, str):
            if given != "all":
                found.append(f"{what} must be a list of executors or 'all', not {given!r}")
            return list(self._nodes)
        ids = [one if isinstance(one, str) else self._known(one) for one in given]
        for id, one in zip(ids, given, strict=True):
            if id not in self._nodes:
                found.append(f"unknown output in {what}: {one!r} is no executor of this workflow")
        return [id for id in ids if id in self._nodes]

    def _known(self, given: ExecutorLike | Callable[..., Any]) -> str:
        node = self._by_object.get(id(given))
        return node.id if node is not None else getattr(given, "id", None) or name_of(given)

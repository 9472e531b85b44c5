"""Declares a workflow; `build()` freezes it, or raises everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, Literal, Self, TypeAlias

from stepwell.errors import DefinitionError
from stepwell.graph.edges import (
    Case,
    Condition,
    Default,
    Direct,
    Edge,
    FanIn,
    FanOut,
    Select,
    Selection,
    Switch,
    name_of,
)
from stepwell.graph.executor import Executor
from stepwell.graph.graph import Graph, OnUnroutable, OutputKind
from stepwell.graph.migration import Migration, find_migration_problems, version_of
from stepwell.graph.subworkflow import find_unrouted_outputs
from stepwell.graph.validation import find_problems
from stepwell.model.state import Reducer
from stepwell.model.valid_text import is_text
from stepwell.storage.checkpoint_storage import CheckpointStorage
from stepwell.workflows.executor_specs import ExecutorLike, ExecutorSpec, freeze, identity, spec_of
from stepwell.workflows.result import OutputT
from stepwell.workflows.storage_options import StorageLike, storage_of
from stepwell.workflows.workflow import Workflow

DEFAULT_MAX_ITERATIONS = 100
"""Supersteps that a run may take since the last message from outside, unless the builder sets another limit."""

OutputsFrom: TypeAlias = "Sequence[ExecutorLike] | Literal['all'] | None"
OthersFrom: TypeAlias = "Sequence[ExecutorLike] | Literal['all', 'all_other'] | None"


class WorkflowBuilder(Generic[OutputT]):
    """Declares a workflow: executors, and the edges between them.

    An executor may be passed as an instance, a class, a factory, or the id of one that is used elsewhere in the same
    builder.

    `version` is the version of the workflow, by default that of the last migration, or 1; `migrations` declare how
    runs of each earlier version become runs of the next.

    `WorkflowBuilder[Report](...)` tells type checkers what the workflow yields: `build()` returns a `Workflow[Report]`,
    and `get_outputs()` of its results a `list[Report]`.
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
        version: int | None = None,
        migrations: Sequence[Migration] = (),
    ) -> None:
        self._name, self._description = name, description
        self._max_iterations = max_iterations
        self._output_from, self._intermediate_from = output_from, intermediate_output_from
        self._reducers = dict(reducers or {})
        self._on_unroutable = on_unroutable
        self._version, self._migrations = version, migrations
        self._specs: dict[str, ExecutorSpec] = {}
        self._by_object: dict[Hashable, ExecutorSpec] = {}
        # `_by_object` uses identities, so these must stay alive.
        self._referenced: list[object] = []
        self._edges: list[Edge] = []
        self._problems: list[str] = []
        self._start: str | None = None
        self._storage: CheckpointStorage | None = None
        if checkpoint_storage is not None:
            self.with_checkpointing(checkpoint_storage)
        if start_executor is not None:
            self.set_start_executor(start_executor)

    def set_start_executor(self, executor: ExecutorLike) -> Self:
        """Set the executor that receives the input."""
        self._start = self._id(executor)
        return self

    def with_checkpointing(self, checkpoint_storage: StorageLike) -> Self:
        """Commit every run to this storage, unless another one is passed to `run`."""
        try:
            self._storage = storage_of(checkpoint_storage)
        except DefinitionError as error:
            self._problems += error.problems
        return self

    def set_max_iterations(self, max_iterations: int) -> Self:
        """Set how many supersteps a run may take since its last input."""
        self._max_iterations = max_iterations
        return self

    def add_edge(self, source: ExecutorLike, target: ExecutorLike, condition: Condition | None = None) -> Self:
        """Send messages of `source` to `target`, if the condition holds. The condition may be async."""
        return self._add(Direct(self._id(source), self._id(target), condition))

    def add_chain(self, executors: Sequence[ExecutorLike]) -> Self:
        """Add edges from each executor to the next."""
        ids = self._ids(executors, "a chain")
        if len(ids) == 1:
            self._problems.append(f"a chain needs at least two executors, not only {ids[0]!r}")
        for source, target in pairwise(ids):
            self._add(Direct(source, target))
        return self

    def add_fan_out_edges(self, source: ExecutorLike, targets: Sequence[ExecutorLike]) -> Self:
        """Send messages of `source` to every target."""
        id = self._id(source)
        return self._add(FanOut(id, self._ids(targets, f"the fan-out from {id!r}")))

    def add_fan_in_edges(self, sources: Sequence[ExecutorLike], target: ExecutorLike) -> Self:
        """Join the messages of the sources: once each has sent one, `target` gets them as a list, in their order."""
        id = self._id(target)
        return self._add(FanIn(self._ids(sources, f"the fan-in into {id!r}"), id))

    def add_switch_case_edge_group(self, source: ExecutorLike, cases: Sequence[Case | Default]) -> Self:
        """Send messages of `source` to the target of the first case that holds, else to the default."""
        id = self._id(source)
        routes = tuple((case.condition, self._id(case.target)) for case in cases if isinstance(case, Case))
        defaults = [self._id(case.target) for case in cases if isinstance(case, Default)]
        for case in cases:
            if not isinstance(case, (Case, Default)):
                self._problems.append(
                    f"the switch from {id!r} has {case!r}, which is neither Case(...) nor Default(...)"
                )
        if len(defaults) != 1:
            self._problems.append(
                f"the switch from {id!r} has {len(defaults) or 'no'} Default(...); it needs exactly one"
            )
        if not routes:
            self._problems.append(f"the switch from {id!r} has no Case(...)")
        # Without a default, one of the cases stands in, so that the other checks see all targets.
        last = [*defaults, *(target for _, target in routes)][:1]
        return self._add(Switch(id, routes, *last)) if last else self

    def add_multi_selection_edge_group(
        self, source: ExecutorLike, targets: Sequence[ExecutorLike], selection_func: Selection
    ) -> Self:
        """Send messages of `source` to the targets whose ids `selection_func(message, target_ids)` returns."""
        id = self._id(source)
        return self._add(Select(id, self._ids(targets, f"the selection from {id!r}"), selection_func))

    def build(self) -> Workflow[OutputT]:
        """Return the immutable workflow. Raises DefinitionError with all problems at once."""
        # Frozen now: later changes to an instance that was passed must not change what later runs start with.
        specs = {id: freeze(spec) for id, spec in self._specs.items()}
        patterns = {id: spec.pattern for id, spec in specs.items()}
        outputs, output_problems = self._outputs()
        problems = [
            *self._problems,
            *find_problems(self._start, patterns, self._edges),
            *output_problems,
            *self._wrong_settings(),
        ]
        if self._on_unroutable == "fail":
            problems += find_unrouted_outputs(patterns, self._edges)
        if problems or self._start is None:
            raise DefinitionError(list(dict.fromkeys(problems)))
        # The graph is visible to users: changes to its executors must not reach those of a run.
        visible = {id: pattern.clone() for id, pattern in patterns.items()}
        graph = Graph(self._start, visible, tuple(self._edges), outputs, dict(self._reducers), self._on_unroutable)
        migrations = tuple(self._migrations)
        return Workflow(
            graph,
            specs,
            name=self._name,
            description=self._description,
            max_iterations=self._max_iterations,
            checkpoint_storage=self._storage,
            version=version_of(migrations, self._version),
            migrations=migrations,
        )

    def _wrong_settings(self) -> Iterator[str]:
        for key, reducer in self._reducers.items():
            if not callable(reducer):
                yield f"the reducer of state[{key!r}] is {reducer!r}, which is not callable"
        if not isinstance(self._max_iterations, int) or self._max_iterations < 1:
            yield f"max_iterations must be at least 1, not {self._max_iterations!r}"
        if self._name is not None and (not isinstance(self._name, str) or not self._name or not is_text(self._name)):
            yield f"the name of a workflow must be a non-empty string of valid Unicode, not {self._name!r}"
        if self._on_unroutable not in ("fail", "drop"):
            yield f'on_unroutable must be "fail" or "drop", not {self._on_unroutable!r}'
        if not _is_list(self._migrations):
            yield f"migrations must be a list of Migration(...), not {self._migrations!r}"
        else:
            yield from find_migration_problems(list(self._migrations), self._version)

    def _add(self, edge: Edge) -> Self:
        self._edges.append(edge)
        return self

    def _ids(self, executors: Sequence[ExecutorLike], what: str) -> tuple[str, ...]:
        if not _is_list(executors):
            self._problems.append(f"{what} needs a list of executors, not {executors!r}")
            return ()
        ids = tuple(self._id(executor) for executor in executors)
        if not ids:
            self._problems.append(f"{what} names no executor")
        return ids

    def _id(self, executor: ExecutorLike) -> str:
        if isinstance(executor, str):
            return executor
        spec = self._by_object.get(identity(executor))
        if spec is None:
            try:
                spec = spec_of(_wrap_workflow(executor))
            except DefinitionError as error:
                # The problem is reported by `build()`, with all others; until then the edge needs some id.
                self._problems += error.problems
                return getattr(executor, "__name__", None) or repr(executor)
            self._by_object[identity(executor)] = spec
            self._referenced.append(executor)
            if spec.id in self._specs:
                self._problems.append(f"duplicate executor id: two different executors are called {spec.id!r}")
            else:
                self._specs[spec.id] = spec
        return spec.id

    def _outputs(self) -> tuple[dict[str, OutputKind] | None, list[str]]:
        """Return what kind of output each executor yields (None: all yield outputs), and problems with that."""
        if self._output_from is None and self._intermediate_from is None:
            return None, []
        problems: list[str] = []
        chosen = self._output_ids(self._output_from, "output_from", problems)
        if self._intermediate_from == "all_other":
            others = [id for id in self._specs if id not in chosen]
        else:
            others = self._output_ids(self._intermediate_from, "intermediate_output_from", problems)
        problems += [f"{id!r} stands in output_from and in intermediate_output_from" for id in chosen if id in others]
        if not chosen and not others and not problems:
            problems.append("output_from and intermediate_output_from name no executor: the run would have no outputs")
        return {**dict.fromkeys(others, "intermediate"), **dict.fromkeys(chosen, "output")}, problems

    def _output_ids(self, executors: Any, what: str, problems: list[str]) -> list[str]:
        if executors is None:
            return []
        if executors == "all":
            return list(self._specs)
        if not _is_list(executors):
            problems.append(f"{what} must be a list of executors or 'all', not {executors!r}")
            return []
        ids = [executor if isinstance(executor, str) else self._find_id(executor) for executor in executors]
        for id, executor in zip(ids, executors, strict=True):
            if id not in self._specs:
                problems.append(f"unknown output in {what}: {executor!r} is not an executor of this workflow")
            elif not any(spec.may_yield for spec in self._specs[id].pattern._handler_table.every_spec()):
                problems.append(f"{id!r} stands in {what}, but its handlers declare that they yield no output")
        problems += [f"{id!r} stands twice in {what}" for id in dict.fromkeys(ids) if ids.count(id) > 1]
        return [id for id in ids if id in self._specs]

    def _find_id(self, executor: ExecutorLike | Callable[..., Any]) -> str:
        spec = self._by_object.get(identity(executor))
        return spec.id if spec is not None else getattr(executor, "id", None) or name_of(executor)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, Executor, type))


def _wrap_workflow(executor: ExecutorLike) -> ExecutorLike:
    """Wrap a workflow, or a workflow that is an agent, in an executor."""
    # Before the imports: a workflow without agents need not load them.
    if isinstance(executor, Executor):
        return executor
    if isinstance(executor, Workflow):
        from stepwell.workflows.subworkflow import WorkflowExecutor  # lazy: few graphs have one

        return WorkflowExecutor(executor)
    from stepwell.workflows.subworkflow_agent import WorkflowAgentExecutor  # lazy: it loads agents
    from stepwell.workflows.workflow_agent import WorkflowAgent  # lazy: it loads agents

    return WorkflowAgentExecutor(executor) if isinstance(executor, WorkflowAgent) else executor

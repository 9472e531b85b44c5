"""A workflow inside a workflow: what the one around it can know of it, and what the two say to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stepwell.graph.edges import Edge, FanIn
from stepwell.graph.executor import Executor
from stepwell.graph.type_matching import describe, is_type_compatible


class InnerWorkflow(Protocol):
    """The workflow inside, as far as a picture needs it."""

    @property
    def start_executor_id(self) -> str: ...
    @property
    def executors(self) -> Mapping[str, Executor]: ...
    @property
    def edges(self) -> tuple[Edge, ...]: ...


class Nesting(Executor):
    """An executor that is a workflow of its own."""

    workflow: InnerWorkflow
    _forwarded_types: Sequence[object] = ()  # the types of what it yields, if that is sent to the executors beside it


@dataclass(frozen=True, slots=True)
class SubWorkflowRequest:
    """A question of a sub-workflow, as plain data: what its `request_info` event says."""

    request_id: str
    data: Any
    source_executor_id: str
    request_type: str
    response_type: str
    response_schema: dict[str, Any]
    deadline: str | None
    child: str  # which call of the sub-workflow asks


@dataclass(frozen=True, slots=True)
class SubWorkflowResponseMessage:
    """The answer to a question of a sub-workflow: send it to the executor that the question came from."""

    data: Any
    source_event: SubWorkflowRequest


@dataclass(frozen=True, slots=True)
class SubWorkflowRequestMessage:
    """A question of a sub-workflow, sent to an executor beside it that may answer.

    `ctx.send_message(request.create_response(answer), target_id=request.executor_id)` does.
    """

    source_event: SubWorkflowRequest
    executor_id: str

    def create_response(self, data: Any) -> SubWorkflowResponseMessage:
        """The answer, ready to be sent. Raises TypeError if it is not of the type that is asked for."""
        request = self.source_event
        if type(data) in _PLAIN:
            fits = _fits(data, request.response_schema, request.response_schema.get("$defs", {}))
        else:
            fits = _has_type_named(data, request.response_type)
        if not fits:
            raise TypeError(
                f"{request.request_id!r} of {self.executor_id!r} asks for {request.response_type}, not for a "
                f"{type(data).__name__} like {data!r:.80}"
            )
        return SubWorkflowResponseMessage(data, request)


# A question that was stored knows the type of its answer by name and by schema only. What passes here is looked at
# once more by the sub-workflow, which has the type itself.

_JSON: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple, set, frozenset),
    "string": (str,),
    "number": (int, float),
    "integer": (int, bool),
    "boolean": (bool,),
    "null": (type(None),),
}
_PLAIN = frozenset(kind for kinds in _JSON.values() for kind in kinds)


def _has_type_named(data: object, words: str) -> bool:
    """Whether a value is of a class that is called as one of the types in words."""
    type_names = {word.partition("[")[0] for word in words.split(" | ")}
    return bool(type_names & {"Any", "object", *(cls.__name__ for cls in type(data).__mro__ if cls is not object)})


def _fits(data: Any, schema: Mapping[str, Any], defined: Mapping[str, Any]) -> bool:
    """False if plain data certainly cannot be made into what a JSON schema describes."""
    if "$ref" in schema:
        schema = defined.get(str(schema["$ref"]).rpartition("/")[2], {})
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return any(_fits(data, part, defined) for part in schema[union])
    if "enum" in schema or "const" in schema:
        return data in schema.get("enum", [schema.get("const")])
    if "type" not in schema or type(data) not in _PLAIN:
        return True  # nothing is known of it, or it is something inside a list that is no plain data
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(type(data) in _JSON.get(kind, _PLAIN) for kind in kinds):
        return False
    if isinstance(data, dict):
        return set(schema.get("required", ())) <= set(data)
    items = schema.get("items")
    if isinstance(items, Mapping) and type(data) in _JSON["array"]:
        return all(_fits(part, items, defined) for part in data)
    return True


def find_unrouted_outputs(executors: Mapping[str, Executor], edges: Sequence[Edge]) -> Iterator[str]:
    """The sub-workflows whose outputs nobody beside them could take, one sentence each."""
    for id, executor in executors.items():
        types = executor._forwarded_types if isinstance(executor, Nesting) else ()
        if types and not _is_taken(types, id, executors, edges):
            output_types = " | ".join(map(describe, types))
            yield (
                f"what the sub-workflow {id!r} yields ({output_types}) goes to nobody: "
                f"add an edge from it to an executor that takes it, or give it allow_direct_output=True"
            )


def _is_taken(types: Sequence[object], id: str, executors: Mapping[str, Executor], edges: Sequence[Edge]) -> bool:
    for edge in edges:
        sent_types = [list[sent] for sent in types] if isinstance(edge, FanIn) else types  # type: ignore[valid-type]
        for target in edge.targets if id in edge.sources else ():
            input_types = executors[target].input_types if target in executors else [Any]
            if any(is_type_compatible(sent, input_type) for sent in sent_types for input_type in input_types):
                return True
    return False

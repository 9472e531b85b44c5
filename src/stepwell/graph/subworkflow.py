"""Sub-workflows: what the outer graph knows of one, and the messages by which its requests are answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stepwell.graph.edges import Edge, FanIn
from stepwell.graph.executor import Executor, HandlerTable
from stepwell.graph.handler import HandlerSpec
from stepwell.graph.type_matching import describe, is_type_compatible
from stepwell.model.request import Request


class InnerWorkflow(Protocol):
    """The part of a sub-workflow that a picture of the outer one needs."""

    @property
    def start_executor_id(self) -> str: ...
    @property
    def executors(self) -> Mapping[str, Executor]: ...
    @property
    def edges(self) -> tuple[Edge, ...]: ...


class Nesting(Executor):
    """An executor that runs a workflow."""

    workflow: InnerWorkflow
    # the types of its outputs, if they are sent as messages of the outer workflow
    _forwarded_types: Sequence[object] = ()


@dataclass(frozen=True, slots=True)
class SubWorkflowRequest:
    """A request of a sub-workflow as plain data, with the attributes of its `request_info` event."""

    request_id: str
    data: Any
    source_executor_id: str
    request_type: str
    response_type: str
    response_schema: dict[str, Any]
    deadline: str | None
    # the sub-workflow run that made it
    child: str

    @classmethod
    def of(cls, request: Request, child: str) -> SubWorkflowRequest:
        """Return a request as data."""
        return cls(
            request_id=request.id,
            data=request.payload.open(),
            source_executor_id=request.executor,
            request_type=request.request_type,
            response_type=request.response_type,
            response_schema=json.loads(request.schema),
            deadline=request.deadline,
            child=child,
        )


@dataclass(frozen=True, slots=True)
class SubWorkflowResponseMessage:
    """The response to a request of a sub-workflow: send it to the executor that the request came from."""

    data: Any
    source_event: SubWorkflowRequest


@dataclass(frozen=True, slots=True)
class SubWorkflowRequestMessage:
    """A request of a sub-workflow, sent to an executor of the outer workflow that may respond to it.

    It responds with `ctx.send_message(request.create_response(value), target_id=request.executor_id)`.
    """

    source_event: SubWorkflowRequest
    executor_id: str

    def create_response(self, data: Any) -> SubWorkflowResponseMessage:
        """Return the response, ready to be sent. Raises TypeError if it is not of the requested type."""
        request = self.source_event
        if type(data) in _PLAIN:
            fits = _fits(data, request.response_schema, request.response_schema.get("$defs", {}))
        else:
            fits = _has_type_named(data, request.response_type)
        if not fits:
            raise TypeError(
                f"the request {request.request_id!r} of {self.executor_id!r} expects {request.response_type}, "
                f"not a {type(data).__name__} like {data!r:.80}"
            )
        return SubWorkflowResponseMessage(data, request)


class InnerTable(HandlerTable):
    """The handlers of a sub-workflow: those of its start executor, and the response handlers of all its executors."""

    def __init__(self, specs: Iterable[HandlerSpec], inner: Mapping[str, Executor]) -> None:
        super().__init__(specs)
        self._inner = inner

    def response_types(self, question: object) -> tuple[object, ...]:
        types = (
            response_type
            for executor in self._inner.values()
            for response_type in executor._handler_table.response_types(question)
        )
        return tuple(dict.fromkeys(types))

    def every_type(self) -> Iterable[object]:
        yield from super().every_type()
        yield SubWorkflowRequestMessage
        for executor in self._inner.values():
            yield from executor._handler_table.every_type()


# A stored request knows the type of its response by name and by schema only, so this check finds the
# obvious mistakes, at the line that makes them. The sub-workflow, which has the type, checks again.

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


def _has_type_named(data: object, description: str) -> bool:
    """Return whether a value is an instance of a class with one of the described types' names."""
    type_names = {member.partition("[")[0] for member in description.split(" | ")}
    return bool(type_names & {"Any", "object", *(cls.__name__ for cls in type(data).__mro__ if cls is not object)})


def _fits(data: Any, schema: Mapping[str, Any], defined: Mapping[str, Any]) -> bool:
    """Return False if plain data certainly does not match a JSON schema."""
    if "$ref" in schema:
        schema = defined.get(str(schema["$ref"]).rpartition("/")[2], {})
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return any(_fits(data, part, defined) for part in schema[union])
    if "enum" in schema or "const" in schema:
        return data in schema.get("enum", [schema.get("const")])
    if "type" not in schema or type(data) not in _PLAIN:
        # the schema says nothing, or it is an object inside a list, which has no JSON type
        return True
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
    """Yield a sentence for each sub-workflow whose outputs no executor of the outer workflow would accept."""
    for id, executor in executors.items():
        types = executor._forwarded_types if isinstance(executor, Nesting) else ()
        if types and not _is_taken(types, id, executors, edges):
            output_types = " | ".join(map(describe, types))
            yield (
                f"no executor accepts the outputs of the sub-workflow {id!r} "
                f"({output_types}): add an edge from it to an executor that does, "
                f"or set allow_direct_output=True"
            )


def _is_taken(types: Sequence[object], id: str, executors: Mapping[str, Executor], edges: Sequence[Edge]) -> bool:
    for edge in edges:
        sent_types = [list[sent] for sent in types] if isinstance(edge, FanIn) else types  # type: ignore[valid-type]
        for target in edge.targets if id in edge.sources else ():
            input_types = executors[target].input_types if target in executors else [Any]
            if any(is_type_compatible(sent, input_type) for sent in sent_types for input_type in input_types):
                return True
    return False

"""A stored run of named agents as people know it: its nodes, and not the conductor that leads them.

It is read without any of its classes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stepwell.declarative.conductor import CONDUCTOR, NODES, VALUES
from stepwell.declarative.workflow_node import node_of
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit, Done
from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.payload import Payload
from stepwell.storage.json_text import json_of

_BEGIN = "stepwell:BeginWorkflow"
# Messages between the conductor and its nodes that carry no output.
_INTERNAL = ("stepwell:RunNode", "stepwell:NodesDecided", _BEGIN)
_FAILED_ATTEMPT = re.compile(r"failed \d+")  # names a step in which a node records that its agent failed


def is_of_named_agents(at: Checkpoint) -> bool:
    """Return whether a run is one of named agents: a conductor leads its nodes."""
    # Somebody's own executor may have the same name, so what it keeps or is about to get counts, too.
    if at.header.signature.get("start") != CONDUCTOR:
        return False
    return is_led([at.state["begun"]] if "begun" in at.state else [message.payload for message in at.messages])


def is_led(payloads: Iterable[Payload]) -> bool:
    """Return whether one of these values is what a conductor starts with, or keeps of its start."""
    tags = [value.get("$") for value in map(read_stored, payloads) if isinstance(value, dict)]
    return any(tag in ("stepwell:WorkflowBegun", _BEGIN, "removed") for tag in tags)


def find_node(executor_id: str) -> str | None:
    """Return the node that an executor of a run of named agents belongs to; None for the conductor."""
    return None if executor_id == CONDUCTOR else node_of(executor_id)


def input_of(stored: Any) -> Any:
    """Return what people mean by the input: the first message of named agents carries their definition, too."""
    fields = stored.get("v") if isinstance(stored, dict) and stored.get("$") == _BEGIN else None
    return fields.get("input") if isinstance(fields, dict) else stored


def is_internal(stored: Any) -> bool:
    """Return whether a stored message is one by which nodes are led, and says nothing about what they did."""
    return isinstance(stored, dict) and stored.get("$") in _INTERNAL


def values_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a run of named agents by their keys, given its state."""
    return {key.removeprefix(VALUES): value for key, value in state.items() if key.startswith(VALUES)}


def find_skipped_nodes(at: Checkpoint) -> frozenset[str]:
    """Return the nodes of a run of named agents that were skipped."""
    states = {key.removeprefix(NODES): read_fields(value) for key, value in at.state.items() if key.startswith(NODES)}
    return frozenset(id for id, fields in states.items() if fields.get("status") == "skipped")


def without_conductor(commit: Commit) -> Commit:
    """Return a commit of a run of named agents with what its nodes did, and without what the conductor did."""
    done = tuple(_done_by_node(done, node) for done in commit.done if (node := find_node(done.executor)) is not None)
    return replace(commit, done=done, failures=tuple(map(_failure_of_node, commit.failures)))


def is_failed_attempt(step_name: str) -> bool:
    """Return whether a step of a node, which is not a call of its agent, only records that its agent failed."""
    return _FAILED_ATTEMPT.fullmatch(step_name) is not None


def read_fields(payload: Payload) -> dict[str, Any]:
    """Return the fields of a stored record; none of anything else."""
    value = read_stored(payload)
    fields = value.get("v") if isinstance(value, dict) else None
    return fields if isinstance(fields, dict) else {}


def read_stored(payload: Payload) -> Any:
    """Return a payload in its stored form."""
    return msgspec.json.decode(json_of(payload))


def _done_by_node(done: Done, node: str) -> Done:
    steps = tuple(step for step in done.steps if step.summary or not is_failed_attempt(step.name))
    attempts = done.attempts + len(done.steps) - len(steps)
    return replace(done, executor=node, steps=steps, attempts=attempts)


def _failure_of_node(failure: WorkflowErrorDetails) -> WorkflowErrorDetails:
    node = None if failure.executor_id is None else find_node(failure.executor_id)
    return failure if node == failure.executor_id else dataclasses.replace(failure, executor_id=node)

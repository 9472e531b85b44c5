"""The state of a graph as data: its checkpoint within a turn, and what the run keeps between turns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage, message_to_dict, messages_from_dict
from langchain_core.runnables import RunnableConfig
from langgraph.channels import EphemeralValue
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from stepwell.agents.messages import Answer
from stepwell.agents.turn import Turn

# In a history: the messages after this marker replace those before it. The value is stored.
_REWRITTEN = {"anew": True}
# Not kept as state: messages are in the history, and a structured response belongs to one turn.
_DROPPED_KEYS = ("messages", "structured_response")
# Ids that the library generates at random.
_GENERATED_ID = re.compile(r"(lc_)?run-.*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FIRST_ID = "00000000-0000-0000-0000-000000000000"


class TurnSaver(BaseCheckpointSaver[int]):
    """A checkpointer for one turn: the newest checkpoint of each namespace and the writes since, as data."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, Any] = {}

    def load(self, data: dict[str, Any]) -> None:
        """Return to the state that `data` holds."""
        # The lists are copied: the graph goes on writing, and `data` is a stored result.
        self.data.clear()
        self.data.update({part: {**entry, "writes": list(entry["writes"])} for part, entry in data.items()})

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        part = config["configurable"].get("checkpoint_ns", "")
        entry = self.data.get(part)
        if entry is None:
            return None
        wanted = config["configurable"].get("checkpoint_id")
        if wanted is not None and wanted != entry["id"]:
            raise LookupError(f"the graph requests its checkpoint {wanted}, but a turn keeps only the newest one")
        # By task path, task and index: the order in which LangGraph's own savers return writes.
        writes = sorted(entry["writes"], key=lambda write: (write[3], write[0], write[4]))
        return CheckpointTuple(
            self._at(config, entry["id"]),
            self.serde.loads_typed(entry["checkpoint"]),
            self.serde.loads_typed(entry["metadata"]),
            self._at(config, entry["parent"]) if entry["parent"] else None,
            [(task, channel, self.serde.loads_typed(value)) for task, channel, value, _, _ in writes],
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self.data[config["configurable"].get("checkpoint_ns", "")] = {
            "id": checkpoint["id"],
            "parent": config["configurable"].get("checkpoint_id"),
            "checkpoint": self.serde.dumps_typed(checkpoint),
            "metadata": self.serde.dumps_typed(metadata),
            "writes": [],
        }
        return self._at(config, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        entry = self.data.get(config["configurable"].get("checkpoint_ns", ""))
        if entry is None or entry["id"] != config["configurable"]["checkpoint_id"]:
            return  # a late write of an earlier superstep, whose checkpoint already contains it
        for number, (channel, value) in enumerate(writes):
            # As in LangGraph's own savers: special channels (errors, interrupts) have fixed negative
            # indexes and are overwritten, ordinary writes are kept as they were first.
            at = WRITES_IDX_MAP.get(channel, number)
            existing = [write for write in entry["writes"] if (write[0], write[4]) == (task_id, at)]
            if existing and at >= 0:
                continue
            entry["writes"] = [write for write in entry["writes"] if write not in existing]
            entry["writes"].append([task_id, channel, self.serde.dumps_typed(value), task_path, at])

    @staticmethod
    def _at(config: RunnableConfig, id: str) -> RunnableConfig:
        configurable = config["configurable"]
        part = configurable.get("checkpoint_ns", "")
        return {"configurable": {"thread_id": configurable["thread_id"], "checkpoint_ns": part, "checkpoint_id": id}}


def messages_before(turn: Turn) -> list[AnyMessage]:
    """Return the messages of earlier turns, without those that were replaced."""
    history = turn.history
    since = max((n + 1 for n, item in enumerate(history) if item == _REWRITTEN), default=0)
    messages: list[Any] = messages_from_dict(history[since:])
    return messages


async def restore(saver: TurnSaver, config: RunnableConfig, turn: Turn) -> None:
    """Give the graph a checkpoint with its state at the end of the last turn."""
    before = messages_before(turn)
    values: dict[str, Any] = {} if turn.state is None else saver.serde.loads_typed(tuple(turn.state))
    values |= {"messages": before} if before else {}
    if values:
        versions: ChannelVersions = dict.fromkeys(values, 1)
        # Nobody looks at the id and the time; constants make the checkpoint the same each time.
        checkpoint = Checkpoint(
            v=2,
            id=_FIRST_ID,
            ts="1970-01-01T00:00:00+00:00",
            channel_values=values,
            channel_versions=versions,
            versions_seen={},
            updated_channels=None,
        )
        await saver.aput(config, checkpoint, {"source": "update", "step": 0, "parents": {}}, versions)


async def answer_with_state(
    answer: Answer, messages: Sequence[BaseMessage], saver: TurnSaver, config: RunnableConfig, channels: Any, turn: Turn
) -> Answer:
    """Add to an answer what the next turn needs: the new messages, and the rest of the graph's state."""
    stored = await saver.aget_tuple(config)
    values = {} if stored is None else stored.checkpoint["channel_values"]
    others = {
        key: values[key]
        for key in sorted(channels.keys() & values.keys())
        if key not in _DROPPED_KEYS
        and not key.startswith(("__", "branch:"))
        and not isinstance(channels[key], EphemeralValue)
    }
    state = list(saver.serde.dumps_typed(others)) if others else None
    return Answer(answer.messages, _new_items(messages, turn), state, answer.value, answer.handoff)


def _new_items(messages: Sequence[BaseMessage], turn: Turn) -> list[Any]:
    """Return what to append to the history so that it ends with these messages."""
    # A graph may also edit or trim earlier messages, for instance to summarise them. The history is
    # append-only, so all messages are then appended after a marker.
    before: Sequence[BaseMessage] = messages_before(turn)
    is_continuation = list(messages[: len(before)]) == list(before)
    place = len(turn.history)
    new = messages[len(before) :] if is_continuation else messages
    items = [message_to_dict(_with_stable_id(message, f"{place}/{n}")) for n, message in enumerate(new)]
    return items if is_continuation else [_REWRITTEN, *items]


def _with_stable_id(message: BaseMessage, place: str) -> BaseMessage:
    """Replace a generated id by one that is the same each time the turn is taken."""
    if message.id is None or _GENERATED_ID.fullmatch(message.id):
        return message.model_copy(update={"id": place})
    return message

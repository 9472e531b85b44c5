"""What a graph knows, as data: its state between turns, and where it is within a turn."""

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

from stepwell.agents.replies import Answer
from stepwell.agents.turn import Turn

_ANEW = {"anew": True}  # in a history: what was said before counts no more
_NOT_KEPT = ("messages", "structured_response")  # the history has these; that belongs to one turn
_MADE_UP = re.compile(r"(lc_)?run-.*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # ids that the library made up
_FIRST = "00000000-0000-0000-0000-000000000000"


class TurnSaver(BaseCheckpointSaver[int]):
    """The newest checkpoint of each part of a graph, and what was written since, as data."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, Any] = {}

    def load(self, data: dict[str, Any]) -> None:
        """Be as it was when this was noted; what was noted must stay as it is."""
        self.data.clear()
        self.data.update({part: {**entry, "writes": list(entry["writes"])} for part, entry in data.items()})

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        part = config["configurable"].get("checkpoint_ns", "")
        entry = self.data.get(part)
        if entry is None:
            return None
        wanted = config["configurable"].get("checkpoint_id")
        if wanted is not None and wanted != entry["id"]:
            raise LookupError(f"the graph asks for its checkpoint {wanted}; within a turn only the newest is kept")
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
            return  # of a superstep that is over: its checkpoint has what was written
        for number, (channel, value) in enumerate(writes):
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
    """The messages of earlier turns that still count."""
    history = turn.history
    since = max((n + 1 for n, item in enumerate(history) if item == _ANEW), default=0)
    messages: list[Any] = messages_from_dict(history[since:])
    return messages


async def restore(saver: TurnSaver, config: RunnableConfig, turn: Turn) -> None:
    """Let the graph find what it knew at the end of the last turn."""
    before = messages_before(turn)
    values: dict[str, Any] = {} if turn.state is None else saver.serde.loads_typed(tuple(turn.state))
    values |= {"messages": before} if before else {}
    if values:
        versions: ChannelVersions = dict.fromkeys(values, 1)
        checkpoint = Checkpoint(
            v=2,
            id=_FIRST,
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
    """The answer, with what is to be known in the next turn: the messages, and whatever else the graph keeps."""
    stored = await saver.aget_tuple(config)
    values = {} if stored is None else stored.checkpoint["channel_values"]
    others = {key: values[key] for key in sorted(values) if key not in _NOT_KEPT and _stays(key, channels)}
    state = list(saver.serde.dumps_typed(others)) if others else None
    return Answer(answer.messages, _news(messages, turn), state, answer.value, answer.handoff)


def _stays(key: str, channels: Any) -> bool:
    return key in channels and not key.startswith(("__", "branch:")) and not isinstance(channels[key], EphemeralValue)


def _news(messages: Sequence[BaseMessage], turn: Turn) -> list[Any]:
    """What is new in the history. A graph may also change what was said before: then everything is."""
    before: Sequence[BaseMessage] = messages_before(turn)
    goes_on = list(messages[: len(before)]) == list(before)
    place = len(turn.history)
    new = messages[len(before) :] if goes_on else messages
    items = [message_to_dict(_with_stable_id(message, f"{place}/{n}")) for n, message in enumerate(new)]
    return items if goes_on else [_ANEW, *items]


def _with_stable_id(message: BaseMessage, place: str) -> BaseMessage:
    """With an id that is the same however often the turn is taken."""
    if message.id is None or _MADE_UP.fullmatch(message.id):
        return message.model_copy(update={"id": place})
    return message

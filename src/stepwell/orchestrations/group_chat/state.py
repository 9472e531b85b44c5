"""`Chat`: the stored state of a group chat, as one handler call reads and writes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stepwell.agents.messages import AgentResponse, Message, conversation_key
from stepwell.graph.context import WorkflowContext
from stepwell.orchestrations.group_chat.values import GroupChatProgress

ChatContext = WorkflowContext[Any, AgentResponse]


class Chat:
    """The conversation and the progress of a chat: read once, and written to the state on each change."""

    def __init__(self, orchestrator_id: str, ctx: ChatContext) -> None:
        self.ctx = ctx
        self._conversation, self._progress = conversation_key(orchestrator_id), f"group_chat/{orchestrator_id}"
        self.conversation: list[Message] = ctx.get_state(self._conversation, [])
        self.progress: GroupChatProgress = ctx.get_state(self._progress, GroupChatProgress())

    def update(self, **changes: Any) -> None:
        """Change fields of the progress."""
        self.progress = replace(self.progress, **changes)
        self.ctx.set_state(self._progress, self.progress)

    def add(self, messages: Iterable[Message], author: str | None) -> list[Message]:
        """Append the new ones of these messages to the conversation, and return them as stored.

        The author is set if it is known.
        """
        # A participant may answer with the whole conversation; what is in it already is not new.
        known_ids = {message.id for message in self.conversation}
        new = [
            message for message in messages if _belongs(message) and (message.id is None or message.id not in known_ids)
        ]
        signed = [
            replace(
                message,
                author_name=author or message.author_name,
                id=message.id or f"{self.ctx.idempotency_key}/{n}",
            )
            for n, message in enumerate(new, len(self.conversation))
        ]
        self.ctx.append_state(self._conversation, *signed)
        self.conversation += signed
        return signed

    def take_news_for(self, id: str) -> list[Message]:
        """Return the messages of others that a participant has not received, and mark them as received."""
        heard = self.progress.heard
        if heard.get(id, 0) < len(self.conversation):
            self.update(heard={**heard, id: len(self.conversation)})
        return [message for message in self.conversation[heard.get(id, 0) :] if message.author_name != id]


def _belongs(message: Message) -> bool:
    """Say whether a message belongs in the chat: results of tools and empty messages do not."""
    return message.role != "tool" and bool(message.text or message.data is not None)

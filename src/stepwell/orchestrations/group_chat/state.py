"""What is kept of a group chat in the state of the run, as one call of a handler sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from stepwell.agents.messages import AgentResponse, Message, conversation_key
from stepwell.graph.context import WorkflowContext
from stepwell.orchestrations.group_chat.values import GroupChatProgress

ChatContext = WorkflowContext[Any, AgentResponse]


class Chat:
    """What was said, and how far the chat is: read once, and written to the state as it changes."""

    def __init__(self, orchestrator_id: str, ctx: ChatContext) -> None:
        self.ctx = ctx
        self._conversation, self._progress = conversation_key(orchestrator_id), f"group_chat/{orchestrator_id}"
        self.conversation: list[Message] = ctx.get_state(self._conversation, [])
        self.progress: GroupChatProgress = ctx.get_state(self._progress, GroupChatProgress())

    def update(self, **changes: Any) -> None:
        """This is how far the chat is now."""
        self.progress = replace(self.progress, **changes)
        self.ctx.set_state(self._progress, self.progress)

    def add(self, messages: Iterable[Message], by: str | None) -> list[Message]:
        """Add what is new to the conversation, under the name of who said it, if that is known.

        Whoever answers with the whole conversation has said only the rest of it.
        """
        known_ids = {message.id for message in self.conversation}
        new = [
            message for message in messages if _belongs(message) and (message.id is None or message.id not in known_ids)
        ]
        signed = [
            replace(message, author_name=by or message.author_name, id=message.id or f"{self.ctx.idempotency_key}/{n}")
            for n, message in enumerate(new, len(self.conversation))
        ]
        self.ctx.append_state(self._conversation, *signed)
        self.conversation += signed
        return signed

    def take_news_for(self, id: str) -> list[Message]:
        """What a participant has not been told, except what it said itself. It counts as told from now on."""
        heard = self.progress.heard
        if heard.get(id, 0) < len(self.conversation):
            self.update(heard={**heard, id: len(self.conversation)})
        return [message for message in self.conversation[heard.get(id, 0) :] if message.author_name != id]


def _belongs(message: Message) -> bool:
    """Whether a message belongs into the chat: what tools gave to an agent, and silence, do not."""
    return message.role != "tool" and bool(message.text or message.data is not None)

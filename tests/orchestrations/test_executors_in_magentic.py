"""Executors that take `GroupChatRequestMessage` may work in a Magentic team."""

import pytest

from stepwell import DefinitionError, Executor, Message, WorkflowContext, handler
from stepwell.orchestrations import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatResponseMessage,
    MagenticBuilder,
)
from tests.orchestrations.managed import PROMPTS, ledger, managing, said_by


class Works(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.heard: list[str] = []

    @handler
    async def hear(self, news: GroupChatParticipantMessage, ctx: WorkflowContext) -> None:
        self.heard += [message.text for message in news.messages]

    @handler
    async def work(self, request: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]) -> None:
        text = f"{request.additional_instruction} after {self.heard[-1]}"
        await ctx.send_message(GroupChatResponseMessage(Message("assistant", text)))


class Deaf(Executor):
    @handler
    async def work(self, number: int, ctx: WorkflowContext) -> None: ...


async def test_an_executor_gets_what_is_new_and_an_instruction_and_its_answer_joins_the_conversation() -> None:
    def progress(messages: list[Message]) -> str:
        return ledger("writer", "write it", done=bool(said_by(messages, "writer")))

    builder = MagenticBuilder(participants=[Works("writer")], manager_agent=managing(progress), **PROMPTS)
    (answer,) = (await builder.build().run("a poem")).get_outputs()
    assert answer.text.startswith("the answer: write it after ")


def test_an_executor_that_takes_neither_form_is_refused() -> None:
    with pytest.raises(DefinitionError, match="GroupChatRequestMessage"):
        MagenticBuilder(participants=[Deaf("deaf")], manager_agent=managing(lambda messages: "")).build()

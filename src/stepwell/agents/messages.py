"""What agents say, and what it cost: plain values that can be stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from stepwell.graph.context import WorkflowContext

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One thing said in a conversation: `Message("user", "Hello")`."""

    role: Role
    text: str = ""
    author_name: str | None = None
    data: Any = None  # what it says besides text: a parsed answer, for instance
    id: str | None = field(default=None, compare=False)  # given when it becomes part of a conversation


MessagesLike = str | Message | Sequence[str | Message]
"""What stands for messages where they come from people."""


def messages_of(said: MessagesLike) -> list[Message]:
    """Messages; a plain text is said by the user. Raises TypeError for anything else."""
    if isinstance(said, (bytes, Mapping)) or not isinstance(said, Iterable | Message):
        raise TypeError(f"say a text, a Message or a list of both, not a {type(said).__name__} like {said!r:.80}")
    several = [said] if isinstance(said, (str, Message)) else list(said)
    for item in several:
        if not isinstance(item, (str, Message)):
            raise TypeError(
                f"a conversation is made of messages and texts, not of a {type(item).__name__} like {item!r:.80}"
            )
    return [Message("user", item) if isinstance(item, str) else item for item in several]


@dataclass(frozen=True, slots=True)
class Usage:
    """What agents used up."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0  # of a model
    tool_calls: int = 0
    seconds: float = field(default=0.0, compare=False)  # that the calls of models and tools took
    cost: float | None = None  # None: not known

    def __add__(self, other: Usage) -> Usage:
        costs = [usage.cost for usage in (self, other) if usage.cost is not None]
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "cost"}
        return Usage(**sums, cost=sum(costs) if costs else None)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class UserInputRequest:
    """What a workflow that stands for an agent asks: answer it by its id."""

    request_id: str
    data: Any
    response_type: str  # in words
    response_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentResponse:
    """What an agent answered, and what the answer cost."""

    messages: Sequence[Message] = ()
    usage: Usage = NOTHING
    value: Any = None  # what the answer was parsed into, if the agent gives more than text
    handoff: str | None = None  # whom the agent hands over to, by the name it was offered
    user_input_requests: Sequence[UserInputRequest] = ()  # of a workflow that stands for an agent

    @property
    def text(self) -> str:
        """Everything said, as one text."""
        return "\n".join(message.text for message in self.messages if message.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class AgentResponseUpdate:
    """Something an agent says or does right now: the data of an `update` event. It counts once the superstep is
    committed; a `withdrawn` event takes it back."""

    text: str = ""  # a piece of what it says,
    author_name: str | None = None
    call: int = 0  # in this call of its model, counted from 1 in each turn
    kind: Literal["text", "tool_called", "tool_returned", "withdrawn"] = "text"
    tool: str | None = None
    tool_call_id: str | None = None
    data: Any = None  # the arguments of a tool, or what it gave


@dataclass(frozen=True, slots=True)
class AgentExecutorRequest:
    """Messages for an agent. With `should_respond=False` it only listens; with `afresh=True` it first forgets
    everything that was said so far."""

    messages: Sequence[Message]
    should_respond: bool = True
    afresh: bool = False


@dataclass(frozen=True, slots=True)
class AgentExecutorResponse:
    """What an agent of a workflow answered. The conversation itself stays where it is, in the state of the run."""

    executor_id: str
    agent_response: AgentResponse
    before: int = 0  # how many messages of its conversation there were before the answer

    def full_conversation(self, ctx: WorkflowContext[Any, Any]) -> list[Message]:
        """The conversation of the agent up to and including this answer, read from the state of the run."""
        return [*ctx.get_state(conversation_key(self.executor_id), [])[: self.before], *self.agent_response.messages]

    def with_text(self, text: str) -> AgentExecutorResponse:
        """The same answer in other words; what came before it stays."""
        messages = self.agent_response.messages
        author = messages[-1].author_name if messages else self.executor_id
        reworded = replace(self.agent_response, messages=(Message("assistant", text, author),), value=None)
        return replace(self, agent_response=reworded)


def conversation_key(executor_id: str) -> str:
    """Where the conversation of an agent is kept in the state of a run."""
    return f"agents/{executor_id}/conversation"


def usage_key(executor_id: str) -> str:
    """Where it is kept what an agent used up."""
    return f"agents/{executor_id}/usage"


def usage_in(state: Any) -> dict[str, Usage]:
    """What each agent of a run used up so far, by the id of its executor, from the state of a checkpoint."""
    usages: dict[str, Usage] = {}
    for key in state:
        if key.startswith("agents/") and key.endswith("/usage"):
            usages[key.removeprefix("agents/").removesuffix("/usage")] = state[key]
    return usages


def total(spent: Iterable[Usage]) -> Usage:
    """What it all comes to."""
    return sum(spent, Usage())

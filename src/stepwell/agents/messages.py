"""The messages, replies, responses and usage of agents: plain values that can be stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from stepwell.graph.context import WorkflowContext
from stepwell.model.subscripts import Subscriptable, ValueT

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One message of a conversation: `Message("user", "Hello")`, or `Message("user", ["Hello", "there"])`.

    Raises TypeError for contents that are not texts: other content of a message is its `data`.
    """

    role: Role
    text: str = ""
    author_name: str | None = None
    data: Any = None  # content besides the text, such as a parsed answer
    id: str | None = field(default=None, compare=False)  # assigned when it joins a conversation

    def __init__(
        self,
        role: Role,
        text: str | Sequence[object] = "",
        author_name: str | None = None,
        data: Any = None,
        id: str | None = None,
        *,
        contents: Sequence[object] | None = None,
    ) -> None:
        if not isinstance(role, str):
            raise TypeError(f"the role of a message is a string such as 'user', not {role!r:.80}")
        given = text if contents is None else contents
        object.__setattr__(self, "role", role)
        object.__setattr__(self, "text", given if isinstance(given, str) else _text_of(given))
        object.__setattr__(self, "author_name", author_name)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "id", id)

    @property
    def contents(self) -> list[str]:
        """The text as a list, as other libraries have it; empty if there is none."""
        return [self.text] if self.text else []


def _text_of(contents: object) -> str:
    """Join the texts of a list: strings, and contents of agent libraries, which have a `text`."""
    parts = (
        list(contents) if isinstance(contents, Iterable) and not isinstance(contents, bytes | Mapping) else [contents]
    )
    texts = [part if isinstance(part, str) else getattr(part, "text", None) for part in parts]
    for part, text in zip(parts, texts, strict=True):
        if not isinstance(text, str):
            raise TypeError(f"a message is made of text, not of a {type(part).__name__}: {part!r:.80}")
    return " ".join(str(text) for text in texts)


MessagesLike = str | Message | Sequence[str | Message]
"""What callers may pass as messages."""


def messages_of(value: MessagesLike) -> list[Message]:
    """Return `value` as a list of messages; a string becomes a message of the user.

    Raises TypeError for anything else.
    """
    # bytes and mappings are iterable, and would be taken apart into numbers and keys.
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable | Message):
        raise TypeError(f"expected a str, a Message or a list of them, not {type(value).__name__}: {value!r:.80}")
    items = [value] if isinstance(value, (str, Message)) else list(value)
    for item in items:
        if not isinstance(item, (str, Message)):
            raise TypeError(f"a list of messages may hold str and Message, not {type(item).__name__}: {item!r:.80}")
    return [Message("user", item) if isinstance(item, str) else item for item in items]


def as_heard(message: Message) -> tuple[Literal["system", "user"], str]:
    """Return a message as the model of another library gets it: its role and its text.

    Another agent's message becomes one of the user, starting with that agent's name.
    """
    if message.role in ("system", "user") or message.author_name is None:
        return "system" if message.role == "system" else "user", message.text
    return "user", f"{message.author_name}: {message.text}"


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls of models and tools consumed."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0  # model calls
    tool_calls: int = 0
    # Time spent in calls of models and tools. Not compared: it differs between otherwise equal runs.
    seconds: float = field(default=0.0, compare=False)
    cost: float | None = None  # None: unknown

    def __add__(self, other: Usage) -> Usage:
        costs = [usage.cost for usage in (self, other) if usage.cost is not None]
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "cost"}
        return Usage(**sums, cost=sum(costs) if costs else None)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a turn."""

    messages: Sequence[Message] = ()
    history: Sequence[Any] = ()  # appended to `turn.history` of the next turns
    state: Any = None  # `turn.state` of the next turn; written whole each time, so keep it small
    value: Any = None  # the parsed answer, if there is more than text
    handoff: str | None = None  # the handoff tool that ended the turn


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model requests."""

    id: str  # unique among the calls of one reply
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    needs_approval: bool = False
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)  # JSON schema of the arguments


ONE_CALL = Usage(calls=1)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model returned, as data that can be stored and recalled."""

    data: Any  # the reply in the caller's own format
    text: str = ""
    calls: Sequence[ToolCall] = ()
    usage: Usage = ONE_CALL


@dataclass(frozen=True, slots=True)
class CurrentToolCall:
    """The tool call that is being made."""

    run_id: str
    executor_id: str
    tool: str
    tool_call_id: str
    idempotency_key: str  # the same whenever this call is repeated, and different from every other call


# A context variable, not an argument: tools are functions of the user's, called through agent libraries.
CURRENT_TOOL_CALL: ContextVar[CurrentToolCall] = ContextVar("stepwell_tool_call")


def current_tool_call() -> CurrentToolCall:
    """Return the tool call being made. Raises RuntimeError outside a tool called by an agent of a run."""
    try:
        return CURRENT_TOOL_CALL.get()
    except LookupError:
        raise RuntimeError("current_tool_call() was called outside a tool that an agent of a run calls") from None


@dataclass(frozen=True, slots=True)
class UserInputRequest:
    """A request of a workflow used as an agent; respond to it by its id."""

    request_id: str
    data: Any
    response_type: str  # its name, for display
    response_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentResponse(Subscriptable[ValueT]):
    """An agent's answer and its usage. `AgentResponse[Report]` says what its `value` is."""

    messages: Sequence[Message] = ()
    usage: Usage = NO_USAGE
    value: ValueT | None = None  # the parsed answer, if there is more than text
    handoff: str | None = None  # the handoff tool the agent called
    user_input_requests: Sequence[UserInputRequest] = ()  # only of a workflow used as an agent

    @property
    def text(self) -> str:
        """The text of all messages, one per line."""
        return "\n".join(message.text for message in self.messages if message.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class AgentResponseUpdate(Subscriptable[ValueT]):
    """Live progress of an agent: the data of an `update` event.

    It is final once the superstep is committed; a `withdrawn` event retracts it.
    """

    text: str = ""
    author_name: str | None = None
    call: int = 0  # the model call that the text belongs to, counted from 1 in each turn
    kind: Literal["text", "tool_called", "tool_returned", "withdrawn"] = "text"
    tool: str | None = None
    tool_call_id: str | None = None
    data: Any = None  # the arguments of a tool, or its result


@dataclass(frozen=True, slots=True)
class AgentExecutorRequest:
    """Messages for an agent.

    With `should_respond=False` they are only added to its conversation; with `afresh=True` the
    conversation is deleted first.
    """

    messages: Sequence[Message]
    should_respond: bool = True
    afresh: bool = False


@dataclass(frozen=True, slots=True)
class AgentExecutorResponse:
    """The answer of an agent of a workflow.

    It does not carry the conversation: that stays in the state of the run, where it is stored once.
    """

    executor_id: str
    agent_response: AgentResponse
    before: int = 0  # length of the agent's conversation before the answer

    def full_conversation(self, ctx: WorkflowContext[Any, Any]) -> list[Message]:
        """Read the agent's conversation, up to and including this answer, from the state of the run."""
        # The answer comes from the response, not from the state: `with_text` may have changed it.
        return [*ctx.get_state(conversation_key(self.executor_id), [])[: self.before], *self.agent_response.messages]

    def with_text(self, text: str) -> AgentExecutorResponse:
        """Return a copy with its answer replaced by `text`; the conversation before it is unchanged."""
        messages = self.agent_response.messages
        author = messages[-1].author_name if messages else self.executor_id
        reworded = replace(self.agent_response, messages=(Message("assistant", text, author),), value=None)
        return replace(self, agent_response=reworded)


def conversation_key(executor_id: str) -> str:
    """Return the state key of an agent's conversation."""
    return f"agents/{executor_id}/conversation"


def usage_key(executor_id: str) -> str:
    """Return the state key of an agent's usage."""
    return f"agents/{executor_id}/usage"


def usage_in(state: Any) -> dict[str, Usage]:
    """Return the usage of each agent of a run, by executor id, from the state of a checkpoint."""
    keys = [key for key in state if key.startswith("agents/") and key.endswith("/usage")]
    return {key.removeprefix("agents/").removesuffix("/usage"): state[key] for key in keys}


def total(usages: Iterable[Usage]) -> Usage:
    """Add up usages."""
    return sum(usages, Usage())

"""A workflow as an agent: a conversation with it is a run, identified by the id of the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, Unpack, overload

from stepwell.agents import (
    AgentExecutorResponse,
    AgentResponse,
    AgentResponseUpdate,
    Message,
    Usage,
    UserInputRequest,
    messages_of,
)
from stepwell.agents.messages import MessagesLike, total
from stepwell.engine.drive.run_stream import RunStream
from stepwell.errors import CheckpointMissing, DefinitionError, RunError
from stepwell.graph.executor import Executor
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.storage.ids import new_run_id
from stepwell.workflows.handle import RunHandle
from stepwell.workflows.result import WorkflowRunResult
from stepwell.workflows.run_options import StreamOptions
from stepwell.workflows.storage_options import StorageLike

_STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)


class Conversable(Protocol):
    """A workflow, as an agent made of it needs it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def start_executor_id(self) -> str: ...
    @property
    def executors(self) -> Mapping[str, Executor]: ...
    def start(
        self,
        message: Any = ...,
        *,
        run_id: str | None = ...,
        checkpoint_storage: StorageLike | None = ...,
        private: Mapping[str, Any] | None = ...,
    ) -> RunHandle: ...
    def attach(
        self,
        run_id: str,
        *,
        drive: bool = ...,
        checkpoint_storage: StorageLike | None = ...,
        private: Mapping[str, Any] | None = ...,
    ) -> RunHandle: ...
    def run_streaming(self, message: Any = ..., **options: Unpack[StreamOptions]) -> RunStream[WorkflowRunResult]: ...


@dataclass(slots=True)
class AgentSession:
    """A conversation: its run, and how much of it was returned already. `to_dict` survives a restart."""

    session_id: str = field(default_factory=new_run_id)
    # The number of the last commit that was returned.
    after: int = -1
    # What the program keeps with the conversation, as plain data; the messages so far are under "messages" if the
    # workflow itself does not keep them.
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def history(self) -> list[Message]:
        """The messages so far, as far as the session keeps them."""
        return [Message(**data) for data in self.state.get("messages", ())]

    def remember(self, messages: Sequence[Message]) -> None:
        """Add messages to the history."""
        kept = [{"role": m.role, "text": m.text, "author_name": m.author_name} for m in messages]
        self.state["messages"] = [*self.state.get("messages", ()), *kept]

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        return data if self.state else {name: value for name, value in data.items() if name != "state"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AgentSession:
        id, after = (data.get("session_id"), data.get("after", -1)) if isinstance(data, Mapping) else (None, None)
        if not isinstance(id, str) or not isinstance(after, int):
            raise TypeError(f"a session is read from the result of its to_dict(), not from {data!r:.80}")
        return cls(id, after, dict(data.get("state", {})))


class AgentStream:
    """The response of an agent, piece by piece: iterate it, and await it for the whole response."""

    def __init__(self, updates: AsyncIterator[AgentResponseUpdate], collect: Callable[[], AgentResponse]) -> None:
        self._updates, self._collect = updates, collect

    def __aiter__(self) -> AsyncIterator[AgentResponseUpdate]:
        return self._updates

    def __await__(self) -> Generator[Any, None, AgentResponse]:
        return self._read_response().__await__()

    async def get_final_response(self) -> AgentResponse:
        """Read the stream to its end and return the whole response, as `await` does."""
        return await self._read_response()

    async def _read_response(self) -> AgentResponse:
        async for _ in self._updates:
            pass
        return self._collect()


class WorkflowAgent:
    """A workflow as an agent: `await agent.run("Hello", session=session)`.

    A session is one run of the workflow: messages go to the start executor; outputs of the workflow, intermediate
    ones included, are the answer; its requests are `user_input_requests`, answered by `run(responses={id: answer})`.
    A session can be continued in any process that has the storage.
    """

    def __init__(
        self,
        workflow: Conversable,
        *,
        name: str | None = None,
        description: str | None = None,
        checkpoint_storage: StorageLike | None = None,
    ) -> None:
        for what, text in (("name", name), ("description", description)):
            if text is not None and not isinstance(text, str):
                raise DefinitionError(f"the {what} of an agent of {workflow.name!r} must be a string, not {text!r:.80}")
        self.workflow, self._storage = workflow, checkpoint_storage
        self.name = name or workflow.name
        self.description = description or workflow.description
        self._last: AgentSession | None = None  # for responses without a session
        # Raises if the start executor accepts no messages.
        self._as_input(messages_of("hello"))

    def create_session(self, session_id: str | None = None) -> AgentSession:
        """Return a new conversation, or the one with this id."""
        return AgentSession(session_id or new_run_id())

    def _as_input(self, messages: list[Message]) -> Any:
        """Return messages in a form that the start executor accepts. Raises DefinitionError if there is none."""
        start = self.workflow.executors[self.workflow.start_executor_id]
        for form in (messages, messages[-1], messages[-1].text):
            if start.can_handle(form):
                return form
        raise DefinitionError(
            f"{self.workflow.name!r} cannot be an agent: its start executor {start.id!r} accepts neither list[Message] "
            f"nor Message nor str"
        )

    def _needs_history(self) -> bool:
        """Return whether the start executor takes messages and nobody keeps those of earlier calls for it."""
        start = self.workflow.executors[self.workflow.start_executor_id]
        return not start._keeps_conversation and start.can_handle(messages_of("hello"))

    @overload
    def run(
        self,
        messages: MessagesLike | None = ...,
        *,
        stream: Literal[True],
        session: AgentSession | None = ...,
        responses: Mapping[str, Any] | None = ...,
        checkpoint_id: str | None = ...,
        checkpoint_storage: StorageLike | None = ...,
        private: Mapping[str, Any] | None = ...,
        nested: bool = ...,
    ) -> AgentStream: ...
    @overload
    def run(
        self,
        messages: MessagesLike | None = ...,
        *,
        stream: Literal[False] = ...,
        session: AgentSession | None = ...,
        responses: Mapping[str, Any] | None = ...,
        checkpoint_id: str | None = ...,
        checkpoint_storage: StorageLike | None = ...,
        private: Mapping[str, Any] | None = ...,
        nested: bool = ...,
    ) -> Awaitable[AgentResponse]: ...
    def run(
        self,
        messages: MessagesLike | None = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        responses: Mapping[str, Any] | None = None,
        checkpoint_id: str | None = None,
        checkpoint_storage: StorageLike | None = None,
        private: Mapping[str, Any] | None = None,
        nested: bool = False,
    ) -> AgentStream | Awaitable[AgentResponse]:
        """Send messages or responses, and return the answer.

        Without either, a session continues where it was: the answer is what it said since it last returned. With
        `checkpoint_id` it continues from there. Without a session each call is a new conversation, except for
        `responses`, which go to the last one. A stream has the updates of the workflow's own agents, and with `nested`
        those of agents in its sub-workflows. Raises what the run raises, and RunError if the conversation waits for
        responses and gets messages.
        """
        if messages is not None and (responses is not None or checkpoint_id is not None):
            raise ValueError("pass messages, responses or a checkpoint_id, not several of them")
        if session is not None and not isinstance(session, AgentSession):
            raise TypeError(
                f"session must be an AgentSession, made by create_session(...) or AgentSession.from_dict(...), "
                f"not {session!r:.80}"
            )
        if session is None and responses is not None and checkpoint_id is None:
            session = self._last
        if session is None and messages is None and checkpoint_id is None:
            raise ValueError("pass messages, or the session to continue")
        options = {"checkpoint_storage": checkpoint_storage or self._storage, "private": private}
        here = session or self.create_session()
        self._last = here
        collector = _ResponseCollector(here)
        if checkpoint_id is not None:
            events = self._resume(here, {"checkpoint_id": checkpoint_id, "responses": responses, **options})
        else:
            spoken = None if messages is None else messages_of(messages)
            if self._needs_history():
                collector.new_messages = spoken or []
                spoken = None if spoken is None else [*here.history, *spoken]
            events = self._events(here, spoken, responses, options)
        answering = AgentStream(collector.updates(events, nested=nested), collector.response)
        return answering if stream else answering._read_response()

    async def _resume(self, session: AgentSession, options: dict[str, Any]) -> AsyncIterator[WorkflowEvent]:
        options = {name: value for name, value in options.items() if value is not None}
        stream = self.workflow.run_streaming(nested=True, **options)
        async for event in stream:
            if stream.run_id is not None and stream.run_id != session.session_id:
                session.session_id, session.after = stream.run_id, -1
            yield event

    async def _events(
        self,
        session: AgentSession,
        messages: list[Message] | None,
        responses: Mapping[str, Any] | None,
        options: dict[str, Any],
    ) -> AsyncIterator[WorkflowEvent]:
        # The run of a session exists only once something was said in it.
        handle = self.workflow.attach(session.session_id, drive=True, **options)
        try:
            status = await handle.status()
        except CheckpointMissing:
            if messages is None:
                raise
            handle = self.workflow.start(self._as_input(messages), run_id=session.session_id, **options)
        else:
            # To ask for it is to resume on purpose.
            if messages is None and responses is None and status in _STOPPED:
                async for event in self._resume(session, {"run_id": session.session_id, **options}):
                    yield event
                return
            if session.after < 0 and (messages is not None or responses is not None):  # not what came before
                session.after = (await handle.checkpoints())[-1].number
            await self._send(handle, status, messages, responses)
        # Not `events`, which would repeat outputs that this session has returned already.
        async for event in handle._follow(session.after):
            yield event
        result = await handle.result()  # raises what the run failed with
        # Requests that were open before, too.
        for event in result.get_request_info_events():
            yield event

    async def _send(
        self,
        handle: RunHandle,
        status: WorkflowRunState,
        messages: list[Message] | None,
        responses: Mapping[str, Any] | None,
    ) -> None:
        if responses is not None:
            await handle.respond(responses)
        elif messages is not None and status is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS:
            raise RunError(
                f"the conversation {handle.run_id!r} with {self.name!r} waits for responses: answer its "
                f"user_input_requests with run(responses={{...}})",
                run_id=handle.run_id,
            )
        elif messages is not None:
            await handle.send(self._as_input(messages))

    def __repr__(self) -> str:
        return f"<WorkflowAgent {self.name!r}>"


class _ResponseCollector:
    """Collects the response of a conversation from the events of its run."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._messages: list[Message] = []
        self._usage: list[Usage] = []
        self._value: Any = None
        self._requests: dict[str, UserInputRequest] = {}
        # What was said to the workflow, if the session has to remember it.
        self.new_messages: list[Message] | None = None
        # Executors whose text was emitted as updates.
        self._streamed: set[str | None] = set()

    def response(self) -> AgentResponse:
        usage = total(self._usage)
        return AgentResponse(
            tuple(self._messages), usage, self._value, user_input_requests=tuple(self._requests.values())
        )

    async def updates(
        self, events: AsyncIterator[WorkflowEvent], *, nested: bool
    ) -> AsyncIterator[AgentResponseUpdate]:
        async for event in events:
            if event.path and not nested:
                continue
            # Replayed outputs of a fork may be those of the run it was forked from.
            if event.commit is not None and event.run_id == self._session.session_id:
                self._session.after = max(self._session.after, event.commit)
            if event.type == "update":
                if event.data.kind == "text":
                    self._streamed.add(_speaker(event))
                yield event.data
            elif event.type == "withdrawn":
                self._streamed.discard(_speaker(event))
                yield AgentResponseUpdate("", event.executor_id, event.data or 0, kind="withdrawn")
            elif event.type in ("output", "intermediate") and not event.path:
                response = as_response(event.data, event.executor_id)
                self._messages += response.messages
                self._usage.append(response.usage)
                self._value = response.value if event.type == "output" else self._value
                # Text that was streamed as updates is not repeated as a whole.
                if event.executor_id not in self._streamed and response.text:
                    yield AgentResponseUpdate(response.text, event.executor_id)
                self._streamed.discard(event.executor_id)
            elif event.type == "request_info":
                self._requests[event.request_id] = UserInputRequest(
                    event.request_id, event.data, event.response_type, event.response_schema
                )
        if self.new_messages is not None:
            self._session.remember([*self.new_messages, *self._messages])


def _speaker(event: WorkflowEvent) -> str | None:
    """Return the executor of the run itself that an event is about, however deep inside it happened."""
    return event.path[0] if event.path else event.executor_id


def as_response(output: Any, executor_id: str | None) -> AgentResponse:
    """Return an output of a workflow as the response of an agent."""
    match output:
        case AgentResponse():
            return output
        case AgentExecutorResponse():
            return output.agent_response
        case Message():
            return AgentResponse((output,))
        case list() if output and all(isinstance(item, Message) for item in output):
            return AgentResponse(tuple(output))
        case str():
            return AgentResponse((Message("assistant", output, executor_id),))
    return AgentResponse((Message("assistant", str(output), executor_id, data=output),), value=output)


def combine(responses: list[AgentResponse], author: str) -> AgentResponse:
    """Combine several responses into one, by one author."""
    messages = [replace(message, author_name=author) for response in responses for message in response.messages]
    values = [response.value for response in responses if response.value is not None]
    return AgentResponse(
        tuple(messages), total(response.usage for response in responses), values[-1] if values else None
    )

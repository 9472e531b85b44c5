"""A workflow where an agent is expected: a conversation with it is a run, known by the id of the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol, overload

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
from stepwell.engine.stream import RunStream
from stepwell.errors import CheckpointMissing, DefinitionError, RunError
from stepwell.graph.executor import Executor
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.storage.ids import new_run_id
from stepwell.workflows.handle import RunHandle
from stepwell.workflows.result import WorkflowRunResult
from stepwell.workflows.storage_options import StorageLike

_STOPPED = (WorkflowRunState.FAILED, WorkflowRunState.CANCELLED)


class Conversable(Protocol):
    """A workflow, as far as an agent made of it needs it."""

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
        checkpoint_storage: StorageLike | None = ...,
        private: Mapping[str, Any] | None = ...,
    ) -> RunHandle: ...
    def run_streaming(self, message: Any = ..., **options: Any) -> RunStream[WorkflowRunResult]: ...


@dataclass(slots=True)
class AgentSession:
    """A conversation: the run that it is, and how much of it was told already. `to_dict` survives a restart."""

    session_id: str
    after: int = -1  # the number of the last commit that was told

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AgentSession:
        id, after = (data.get("session_id"), data.get("after", -1)) if isinstance(data, Mapping) else (None, None)
        if not isinstance(id, str) or not isinstance(after, int):
            raise TypeError(f"a session is read from what its to_dict() gave, not from {data!r:.80}")
        return cls(id, after)


class AgentStream:
    """What an agent says, piece by piece: iterate it, and await it for the whole response."""

    def __init__(self, said: AsyncIterator[AgentResponseUpdate], whole: Callable[[], AgentResponse]) -> None:
        self._updates, self._whole = said, whole

    def __aiter__(self) -> AsyncIterator[AgentResponseUpdate]:
        return self._updates

    def __await__(self) -> Generator[Any, None, AgentResponse]:
        return self._read_response().__await__()

    async def _read_response(self) -> AgentResponse:
        async for _ in self._updates:
            pass
        return self._whole()


class WorkflowAgent:
    """A workflow as an agent: `await agent.run("Hello", session=session)`.

    A session is one run of the workflow: what is said in it goes to the start executor, what the workflow yields is
    the answer, and what it asks comes as `user_input_requests`, answered by `run(responses={id: answer})`. A session
    goes on in any process that has the storage.
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
                raise DefinitionError(f"the {what} of an agent made of {workflow.name!r} is a text, not {text!r:.80}")
        self.workflow, self._storage = workflow, checkpoint_storage
        self.name = name or workflow.name
        self.description = description or workflow.description
        self._last: AgentSession | None = None  # for those who answer without naming a session
        self._as_input(messages_of("hello"))

    def create_session(self, session_id: str | None = None) -> AgentSession:
        """A new conversation, or one that was begun under this id."""
        return AgentSession(session_id or new_run_id())

    def _as_input(self, messages: list[Message]) -> Any:
        """Messages in the form that the start executor takes. Raises DefinitionError if it takes none."""
        start = self.workflow.executors[self.workflow.start_executor_id]
        for form in (messages, messages[-1], messages[-1].text):
            if start.can_handle(form):
                return form
        raise DefinitionError(
            f"{self.workflow.name!r} cannot be an agent: its start executor {start.id!r} takes neither list[Message], "
            f"nor Message, nor str"
        )

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
    ) -> AgentStream | Awaitable[AgentResponse]:
        """Say something, or answer what was asked, and hear the answer.

        Without either, a session goes on where it was: what was said in it since it was last told is the answer. With
        `checkpoint_id` it goes on from there. Without a session each call is a conversation of its own, but for
        `responses`, which then go to the last one. Raises what the run raises, and RunError if the conversation
        waits for answers and something else is said.
        """
        if messages is not None and (responses is not None or checkpoint_id is not None):
            raise ValueError("say something, answer, or go on from a checkpoint: not several of them at once")
        if session is not None and not isinstance(session, AgentSession):
            raise TypeError(
                f"a session is an AgentSession, as create_session(...) or AgentSession.from_dict(...) give it, "
                f"not {session!r:.80}"
            )
        if session is None and responses is not None and checkpoint_id is None:
            session = self._last
        if session is None and messages is None and checkpoint_id is None:
            raise ValueError("say something, or name the session that is to go on")
        options = {"checkpoint_storage": checkpoint_storage or self._storage, "private": private}
        here = session or self.create_session()
        self._last = here
        collector = _ResponseCollector(here)
        if checkpoint_id is not None:
            at = {"checkpoint_id": checkpoint_id, "responses": responses, **options}
            answering = AgentStream(collector.updates(self._resume(here, at)), collector.response)
        else:
            new_messages = None if messages is None else messages_of(messages)
            answering = AgentStream(
                collector.updates(self._events(here, new_messages, responses, options)), collector.response
            )
        return answering if stream else answering._read_response()

    async def _resume(self, session: AgentSession, options: dict[str, Any]) -> AsyncIterator[WorkflowEvent]:
        async for event in self.workflow.run_streaming(**{k: v for k, v in options.items() if v is not None}):
            if not event.path:
                session.session_id = event.run_id or session.session_id
            if not event.replayed or event.type == "request_info":
                yield event

    async def _events(
        self,
        session: AgentSession,
        messages: list[Message] | None,
        responses: Mapping[str, Any] | None,
        options: dict[str, Any],
    ) -> AsyncIterator[WorkflowEvent]:
        handle = self.workflow.attach(session.session_id, **options)
        try:
            status = await handle.status()
        except CheckpointMissing:
            if messages is None:
                raise
            handle = self.workflow.start(self._as_input(messages), run_id=session.session_id, **options)
        else:
            if messages is None and responses is None and status in _STOPPED:  # whoever asks for it wants it to go on
                async for event in self._resume(session, {"run_id": session.session_id, **options}):
                    yield event
                return
            if session.after < 0 and (messages is not None or responses is not None):  # only that answer is wanted
                session.after = (await handle.checkpoints())[-1].number
            await self._send(handle, status, messages, responses)
        async for event in handle.events(after=session.after):
            yield event
        result = await handle.result()  # raises what it failed with
        for event in result.get_request_info_events():  # also what was asked and told before
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
                f"the conversation {handle.run_id!r} with {self.name!r} waits for answers: give run(responses={{...}}) "
                f"what was asked for in user_input_requests",
                run_id=handle.run_id,
            )
        elif messages is not None:
            await handle.send(self._as_input(messages))

    def __repr__(self) -> str:
        return f"<WorkflowAgent {self.name!r}>"


class _ResponseCollector:
    """What a conversation comes to, read from what is told of its run."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._messages: list[Message] = []
        self._usage: list[Usage] = []
        self._value: Any = None
        self._requests: dict[str, UserInputRequest] = {}
        self._heard: set[str | None] = set()  # those whose words were told piece by piece

    def response(self) -> AgentResponse:
        usage = total(self._usage)
        return AgentResponse(
            tuple(self._messages), usage, self._value, user_input_requests=tuple(self._requests.values())
        )

    async def updates(self, events: AsyncIterator[WorkflowEvent]) -> AsyncIterator[AgentResponseUpdate]:
        async for event in events:
            if event.commit is not None and not event.path:
                self._session.after = max(self._session.after, event.commit)
            if event.type == "update":
                if event.data.kind == "text":
                    self._heard.add(_speaker(event))
                yield event.data
            elif event.type == "withdrawn":
                self._heard.discard(_speaker(event))
                yield AgentResponseUpdate("", event.executor_id, event.data or 0, kind="withdrawn")
            elif event.type == "output" and not event.path:
                response = as_response(event.data, event.executor_id)
                self._messages += response.messages
                self._usage.append(response.usage)
                self._value = response.value
                if event.executor_id not in self._heard and response.text:
                    yield AgentResponseUpdate(response.text, event.executor_id)
                self._heard.discard(event.executor_id)
            elif event.type == "request_info" and not event.path:
                self._requests[event.request_id] = UserInputRequest(
                    event.request_id, event.data, event.response_type, event.response_schema
                )


def _speaker(event: WorkflowEvent) -> str | None:
    """Which executor of the run itself an event is about, however deep inside it happened."""
    return event.path[0] if event.path else event.executor_id


def as_response(output: Any, executor_id: str | None) -> AgentResponse:
    """What a workflow yields, as what an agent says."""
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
    """Several answers as one, said by one."""
    messages = [replace(message, author_name=author) for response in responses for message in response.messages]
    values = [response.value for response in responses if response.value is not None]
    return AgentResponse(
        tuple(messages), total(response.usage for response in responses), values[-1] if values else None
    )

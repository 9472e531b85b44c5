"""`ScriptedAgent`: an agent that follows a script, for tests, examples and demos. It needs no network."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stepwell.agents.messages import Answer, Message, ModelReply, ToolCall, Usage
from stepwell.agents.turn import Interrupted, Turn, handoff_answer
from stepwell.agents.turn_input import tool_names


@dataclass(frozen=True, slots=True)
class Says:
    """The model answers with a string, streamed word by word if the run is streamed, and the turn ends."""

    text: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Calls:
    """The model calls tools concurrently: `Calls(("search", {"q": "x"}), ("book", {"seat": 3}))`."""

    tools: tuple[tuple[str, dict[str, Any]], ...]
    text: str = ""

    def __init__(self, *tools: tuple[str, dict[str, Any]], text: str = "") -> None:
        object.__setattr__(self, "tools", tools)
        object.__setattr__(self, "text", text)


@dataclass(slots=True)
class Fails:
    """The model fails `times` times, each time after streaming the text `after`."""

    error: Exception
    times: int = 1
    after: str = ""


@dataclass(frozen=True, slots=True)
class Asks:
    """The agent asks a person, and answers with the response."""

    data: Any
    response_type: Any = str


Move = str | Says | Calls | Fails | Asks
"""What a model does when it is called; a string means `Says`."""

Script = Sequence[Move] | Callable[[list[Message]], Move]
"""A list of moves for all turns of a run, or a function that picks the move for each model call."""


class ScriptedAgent:
    """An agent that follows a script.

    `tools` are plain or async functions by name; calls of those in `approve` need approval. The
    attribute `calls` lists the calls that were really made, not recalled: "model" and names of tools.
    """

    def __init__(
        self,
        name: str,
        script: Script,
        *,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        approve: Iterable[str] = (),
        description: str | None = None,
        tokens_per_word: int = 1,
    ) -> None:
        self.name, self.description = name, description
        if isinstance(script, str) or not (callable(script) or isinstance(script, Sequence)):
            raise TypeError(
                f"the script of {name!r} must be a list of moves or a function that returns a move, not {script!r:.80}"
            )
        if tools is not None and not isinstance(tools, Mapping):
            raise TypeError(f"the tools of {name!r} must be a mapping of names to functions, not {tools!r:.80}")
        self._script, self._tools, self._approve = script, dict(tools or {}), tool_names(approve, "approve")
        self._tokens = tokens_per_word
        self._failed: dict[int, int] = {}
        self.calls: list[str] = []

    async def take_turn(self, turn: Turn) -> Answer:
        done: int = turn.state or 0  # moves made in earlier turns
        tool_messages: list[Message] = []  # results of tools in this turn
        while True:
            move = self._move(done, turn.conversation + tool_messages)
            done += 1
            if isinstance(move, Fails):
                await self._fail(move, done, turn)
                continue
            if isinstance(move, Asks):
                answer = await turn.ask(f"move {done}", move.data, move.response_type)
                return Answer([Message("assistant", str(answer))], state=done)
            try:
                reply = await turn.model(partial(self._speak, move, turn))
            except Interrupted:
                # A handoff ends the turn with an answer; anything else waits for a person.
                if turn.handoff is None:
                    raise
                return handoff_answer(turn, state=done)
            if not reply.calls:
                return Answer([Message("assistant", reply.text)], state=done, value=reply.data)
            results = await self._use_all(reply.calls, turn)
            tool_messages += [
                Message("tool", str(result), call.name) for call, result in zip(reply.calls, results, strict=True)
            ]

    def _move(self, done: int, conversation: list[Message]) -> Move:
        if callable(self._script):
            return self._script(conversation)
        if done >= len(self._script):
            raise IndexError(
                f"the script of {self.name!r} has only {len(self._script)} moves, but the model is called again"
            )
        return self._script[done]

    async def _fail(self, move: Fails, number: int, turn: Turn) -> None:
        """Fail as often as the script says; after that, do nothing."""
        # Counted on the agent, not in the run: a failed turn is repeated from its beginning, and must
        # get past this move in the end.
        if self._failed.get(number, 0) >= move.times:
            return
        self._failed[number] = self._failed.get(number, 0) + 1

        async def call() -> ModelReply:
            self.calls.append("model")
            turn.delta(move.after)
            raise move.error

        await turn.model(call)

    async def _speak(self, move: str | Says | Calls, turn: Turn) -> ModelReply:
        self.calls.append("model")
        # A real model call always gives other tasks a chance to run.
        await asyncio.sleep(0)
        text = move if isinstance(move, str) else move.text
        for word in text.split(" ") if text and turn.streaming else ():
            turn.delta(f"{word} ")
        tools = move.tools if isinstance(move, Calls) else ()
        calls = [ToolCall(f"call-{n}", name, args, name in self._approve) for n, (name, args) in enumerate(tools)]
        words_read = sum(len(message.text.split()) for message in turn.conversation)
        usage = Usage(words_read * self._tokens, len(text.split()) * self._tokens, calls=1)
        return ModelReply(move.value if isinstance(move, Says) else None, text, calls, usage)

    async def _use_all(self, calls: Sequence[ToolCall], turn: Turn) -> list[Any]:
        """Return the results of all these calls, or raise the first error."""
        # If one fails, the others still finish: their results are stored and need not be made again.
        results = await asyncio.gather(*(self._use(call, turn) for call in calls), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def _use(self, call: ToolCall, turn: Turn) -> Any:
        async def run(arguments: dict[str, Any]) -> Any:
            if call.name not in self._tools:
                raise LookupError(f"the script of {self.name!r} calls {call.name!r}, which is not among its tools")
            self.calls.append(call.name)
            result = self._tools[call.name](**arguments)
            return await result if inspect.isawaitable(result) else result

        return await turn.tool(call, run)

    def __repr__(self) -> str:
        return f"<ScriptedAgent {self.name!r}>"

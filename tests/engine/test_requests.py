"""Questions to people: asked, answered once, checked, carried over restarts, and what happens when nobody answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from stepwell import (
    CheckpointMissing,
    DefinitionError,
    Executor,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RequestExpired,
    ResponseRejected,
    RunBusy,
    RunError,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import Crash, CrashingStore

WAITING = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


@dataclass
class Draft:
    text: str


@dataclass
class Approval:
    granted: bool
    reason: str = ""


class Editor(Executor):
    """Asks about every draft; a refusal leads to another question."""

    def __init__(self, ran: list[str] | None = None, **options: Any) -> None:
        super().__init__("editor")
        self.ran, self.options = ran if ran is not None else [], options

    @handler
    async def draft(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ran.append(f"draft {text}")
        await ctx.request_info(Draft(text), Approval, **self.options)

    @response_handler
    async def decided(self, original_request: Draft, response: Approval, ctx: WorkflowContext[str, str]) -> None:
        self.ran.append(f"decided {original_request.text} {response.granted}")
        assert ctx.request_id is not None
        if response.granted:
            await ctx.yield_output(f"published {original_request.text}")
        else:
            await ctx.request_info(Draft(f"{original_request.text}+{response.reason}"), Approval)


def build(storage: Any, ran: list[str] | None = None, **options: Any) -> Workflow:
    editor = Editor(ran, **options)
    return WorkflowBuilder(name="news", start_executor=editor, checkpoint_storage=storage).build()


async def asked(run: Any) -> str:
    """The id of the one question a run ends with."""
    result = await run
    assert result.get_final_state() is WAITING
    (event,) = result.get_request_info_events()
    return str(event.request_id)


async def test_a_run_waits_and_goes_on_with_the_answer(storage: Any) -> None:
    ran: list[str] = []
    result = await build(storage, ran).run("a", run_id="r")
    (event,) = result.get_request_info_events()
    assert result.get_final_state() is WAITING
    assert (event.data, event.source_executor_id, event.response_type) == (Draft("a"), "editor", "Approval")
    assert event.response_schema["properties"].keys() == {"granted", "reason"}
    done = await build(storage, ran).run(run_id="r", responses={event.request_id: Approval(True)})
    assert done.get_outputs() == ["published a"]
    assert done.get_final_state() is WorkflowRunState.IDLE
    assert ran == ["draft a", "decided a True"]


async def test_resuming_a_waiting_run_tells_its_questions_again_and_runs_nothing(storage: Any) -> None:
    ran: list[str] = []
    id = await asked(build(storage, ran).run("a", run_id="r"))
    count = len(await storage.list_checkpoint_ids(run_id="r"))
    again = await build(storage, ran).run(run_id="r")
    assert [event.request_id for event in again.get_request_info_events()] == [id]
    assert again.get_request_info_events()[0].replayed
    assert again.get_final_state() is WAITING
    assert len(await storage.list_checkpoint_ids(run_id="r")) == count
    assert ran == ["draft a"]


async def test_an_answer_may_come_with_the_checkpoint_as_well(storage: Any) -> None:
    id = await asked(build(storage).run("a", run_id="r"))
    latest = await storage.get_latest(workflow_name="news")
    assert list(latest.pending_request_info_events) == [id]
    done = await build(storage).run(checkpoint_id=latest.checkpoint_id, responses={id: {"granted": True}})
    assert (done.run_id, done.get_outputs()) == ("r", ["published a"])


@pytest.mark.parametrize("kept", [True, False])
async def test_responses_alone_mean_the_run_of_this_object_that_waits(kept: bool) -> None:
    workflow = build(InMemoryCheckpointStorage() if kept else None)
    with pytest.raises(CheckpointMissing, match="no run of this workflow object waits"):
        _ = workflow.run(responses={"x": 1})
    id = await asked(workflow.run("a"))
    second = await asked(workflow.run(responses={id: Approval(False, "more")}))
    done = await workflow.run(responses={second: Approval(True)})
    assert done.get_outputs() == ["published a+more"]
    with pytest.raises(CheckpointMissing):
        _ = workflow.run(responses={second: Approval(True)})


async def test_if_several_runs_wait_the_error_lists_them() -> None:
    workflow = build(InMemoryCheckpointStorage())
    first = await asked(workflow.run("a", run_id="one"))
    await asked(workflow.run("b", run_id="two"))
    with pytest.raises(RunError, match="'one', 'two'"):
        _ = workflow.run(responses={first: Approval(True)})
    assert (await workflow.run(run_id="one", responses={first: Approval(True)})).get_outputs() == ["published a"]


async def test_questions_of_all_runs_are_listed_without_reading_them(storage: Any) -> None:
    before = datetime.now(UTC)
    ids = [await asked(build(storage, deadline=timedelta(days=1)).run(text, run_id=f"r-{text}")) for text in "ab"]
    pending = await storage.pending_requests()
    assert [(one.request_id, one.run_id, one.executor_id) for one in pending] == [
        (ids[0], "r-a", "editor"),
        (ids[1], "r-b", "editor"),
    ]
    assert pending[0].response_schema["properties"].keys() == {"granted", "reason"}
    assert timedelta(0) <= pending[0].age < timedelta(minutes=5)
    assert pending[0].deadline is not None
    assert pending[0].deadline > before + timedelta(hours=23)
    await build(storage).run(run_id="r-a", responses={ids[0]: Approval(True)})
    assert [one.run_id for one in await storage.pending_requests(workflow_name="news")] == ["r-b"]
    assert await storage.pending_requests(workflow_name="other") == []


async def test_answers_that_are_not_wanted_are_refused_by_name_and_change_nothing(storage: Any) -> None:
    id = await asked(build(storage).run("a", run_id="r"))
    count = len(await storage.list_checkpoint_ids(run_id="r"))
    with pytest.raises(UnknownRequest, match="has no open request 'nope'"):
        await build(storage).run(run_id="r", responses={id: Approval(True), "nope": Approval(True)})
    with pytest.raises(ResponseRejected, match="a str is not Approval"):
        await build(storage).run(run_id="r", responses={id: "yes"})
    with pytest.raises(ResponseRejected, match="granted"):
        await build(storage).run(run_id="r", responses={id: {"granted": "perhaps"}})
    assert len(await storage.list_checkpoint_ids(run_id="r")) == count
    assert len(await storage.pending_requests()) == 1
    done = await build(storage).run(run_id="r", responses={id: {"granted": True}})
    assert done.get_outputs() == ["published a"]
    with pytest.raises(ResponseRejected, match="was answered already at"):
        await build(storage).run(run_id="r", responses={id: Approval(False)})
    assert (await build(storage).run(run_id="r")).get_outputs() == ["published a"]


class Mood(Enum):
    GOOD = "good"


class Form(BaseModel):
    name: str
    age: int = 0


ANSWERS = [
    (Approval, {"granted": True, "reason": "fine"}, Approval(True, "fine")),
    (Form, {"name": "x", "age": 3}, Form(name="x", age=3)),
    (Mood, "good", Mood.GOOD),
    (Approval | None, None, None),
    (Approval | Form, {"name": "x"}, Form(name="x")),
    (Literal["yes", "no"], "no", "no"),
    (list[Approval], [{"granted": False}], [Approval(False)]),
    (bool, True, True),
    (dict[str, int], {"a": 1}, {"a": 1}),
]


@pytest.mark.parametrize(("wanted", "given", "taken"), ANSWERS, ids=[str(n) for n in range(len(ANSWERS))])
async def test_plain_json_is_made_into_what_was_asked_for(wanted: Any, given: Any, taken: Any) -> None:
    got: list[Any] = []

    class Asker(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info("well?", wanted)

        @response_handler(request=str, response=wanted)
        async def take(self, original_request: Any, response: Any, ctx: WorkflowContext) -> None:
            got.append(response)

    workflow = WorkflowBuilder(start_executor=Asker("a"), checkpoint_storage=InMemoryCheckpointStorage()).build()
    id = await asked(workflow.run(1))
    await workflow.run(responses={id: given})
    assert got == [taken]
    assert type(got[0]) is type(taken)


async def test_a_question_that_nobody_could_take_the_answer_to_is_refused_when_it_is_asked() -> None:
    class Asker(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info("well?", bool)

        @response_handler
        async def take(self, original_request: str, response: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match="none of its response handlers accepts bool: they accept str"):
        await WorkflowBuilder(start_executor=Asker("a")).build().run(1)


async def test_the_first_answer_wins_also_if_two_come_at_once(storage: Any) -> None:
    id = await asked(build(storage).run("a", run_id="r"))
    outcomes = await asyncio.gather(
        *(build(storage).run(run_id="r", responses={id: Approval(True, str(n))}) for n in range(4)),
        return_exceptions=True,
    )
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert (await build(storage).run(run_id="r")).get_outputs() == ["published a"]


async def test_a_deadline_that_passes_gives_the_default_and_a_late_answer_is_told_so(storage: Any, later: Any) -> None:
    late = Approval(False, "late")
    id = await asked(build(storage, deadline=timedelta(minutes=30), default=late).run("a", run_id="r"))
    later(minutes=31)
    with pytest.raises(RequestExpired, match="too late"):
        await build(storage).run(run_id="r", responses={id: Approval(True)})
    result = await build(storage).run(run_id="r")
    assert [event.data for event in result.get_request_info_events() if not event.replayed] == [Draft("a+late")]


async def test_a_deadline_that_passes_without_a_default_fails_the_run_for_good(storage: Any, later: Any) -> None:
    await asked(build(storage, deadline=timedelta(minutes=30)).run("a", run_id="r"))
    later(minutes=31)
    for _ in range(2):
        with pytest.raises(RequestExpired, match="got no response; the deadline was"):
            await build(storage).run(run_id="r")
    checkpoints = await storage.list_checkpoints(run_id="r")
    assert [one.status for one in checkpoints].count(WorkflowRunState.FAILED) == 1


async def test_wherever_it_dies_an_answer_is_taken_once() -> None:
    """The engine dies before and after every write of asking, answering and going on."""
    for at in range(1, 6):
        for after in (False, True):
            inner, ran = MemoryStore(), list[str]()
            try:
                id = await asked(build(BuiltInStorage(CrashingStore(inner, at, after=after)), ran).run("a", run_id="r"))
            except Crash:
                id = await asked(build(BuiltInStorage(inner), ran).run("a", run_id="r"))
            try:
                dying = BuiltInStorage(CrashingStore(inner, at, after=after))
                result = await build(dying, ran).run(run_id="r", responses={id: Approval(True)})
            except Crash:
                try:
                    result = await build(BuiltInStorage(inner), ran).run(run_id="r", responses={id: Approval(True)})
                except (UnknownRequest, ResponseRejected):  # it had been taken before the crash
                    result = await build(BuiltInStorage(inner), ran).run(run_id="r")
            assert result.get_outputs() == ["published a"], (at, after)
            assert await BuiltInStorage(inner).pending_requests() == []


async def test_a_failed_response_handler_is_run_again_with_the_same_answer(storage: Any) -> None:
    broken = [True]

    class Asker(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info("well?", str)

        @response_handler
        async def take(self, original_request: str, response: str, ctx: WorkflowContext[None, str]) -> None:
            if broken:
                raise ValueError("not yet")
            await ctx.yield_output(f"{original_request} {response}")

    workflow = WorkflowBuilder(name="w", start_executor=Asker("a"), checkpoint_storage=storage).build()
    id = await asked(workflow.run(1, run_id="r"))
    with pytest.raises(HandlerFailed):
        await workflow.run(run_id="r", responses={id: "yes"})
    broken.clear()
    assert (await workflow.run(run_id="r")).get_outputs() == ["well? yes"]


async def test_a_fork_asks_again_and_is_answered_for_itself(storage: Any) -> None:
    id = await asked(build(storage).run("a", run_id="r"))
    waiting = await storage.get_latest(run_id="r")
    await build(storage).run(run_id="r", responses={id: Approval(True)})
    again = await asked(build(storage).run(checkpoint_id=waiting.checkpoint_id, run_id="fork"))
    done = await build(storage).run(run_id="fork", responses={again: Approval(False, "no")})
    assert done.get_final_state() is WAITING


async def test_a_waiting_checkpoint_goes_on_elsewhere(storage: Any) -> None:
    id = await asked(build(storage).run("a", run_id="r"))
    plain = (await storage.get_latest(run_id="r")).to_dict()
    assert plain["pending_request_info_events"][id]["response_type"] == "Approval"
    elsewhere = InMemoryCheckpointStorage()
    await elsewhere.save(WorkflowCheckpoint.from_dict(plain))
    assert [one.request_id for one in await elsewhere.pending_requests()] == [id]
    done = await build(elsewhere).run(run_id="r", responses={id: Approval(True)})
    assert done.get_outputs() == ["published a"]


@pytest.mark.long
async def test_a_chat_of_a_thousand_answers_in_one_run() -> None:
    class Chat(Executor):
        @handler
        async def begin(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info(n, int)

        @response_handler
        async def said(self, original_request: int, response: int, ctx: WorkflowContext[None, int]) -> None:
            if response < 1000:
                await ctx.request_info(response, int)
            else:
                await ctx.yield_output(response)

    workflow = WorkflowBuilder(start_executor=Chat("chat"), checkpoint_storage=InMemoryCheckpointStorage()).build()
    result = await workflow.run(0)
    for number in range(1, 1001):
        id = next(e.request_id for e in result.get_request_info_events() if not e.replayed)
        result = await workflow.run(responses={id: number})
    assert result.get_outputs() == [1000]


async def test_an_id_may_be_asked_with_again_once_it_was_answered(storage: Any) -> None:
    class Chat(Executor):
        @handler
        async def begin(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info(n, int, request_id="q")

        @response_handler
        async def said(self, original_request: int, response: int, ctx: WorkflowContext[None, int]) -> None:
            if response < 3:
                await ctx.request_info(response, int, request_id="q")
            else:
                await ctx.yield_output(response)

    workflow = WorkflowBuilder(name="w", start_executor=Chat("chat"), checkpoint_storage=storage).build()
    await workflow.run(0, run_id="r")
    for number in (1, 2, 3):
        result = await workflow.run(run_id="r", responses={"q": number})
    assert result.get_outputs() == [3]


@pytest.mark.parametrize("default", ["nonsense", {"granted": "perhaps"}])
async def test_a_default_that_is_no_answer_is_refused_when_it_is_asked(default: Any) -> None:
    with pytest.raises(HandlerFailed, match="the default does not have the requested type"):
        await build(None, deadline=timedelta(days=1), default=default).run("a")


@pytest.mark.parametrize("deadline", [60, "2030-01-01", date(2030, 1, 1)])
async def test_a_deadline_that_is_no_time_is_refused_when_it_is_asked(deadline: Any) -> None:
    with pytest.raises(HandlerFailed, match="TypeError: the deadline must be a timedelta, or a datetime with a time"):
        await build(None, deadline=deadline).run("a")


async def test_a_default_may_be_plain_json(storage: Any) -> None:
    result = await build(storage, deadline=timedelta(0), default={"granted": True}).run("a", run_id="r")
    assert result.get_outputs() == ["published a"]


async def test_a_run_that_is_kept_nowhere_is_answered_once_and_keeps_its_outputs() -> None:
    class Teller(Editor):
        @handler
        async def draft(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.yield_output("first")
            await ctx.request_info(Draft(text), Approval)

    workflow = WorkflowBuilder(start_executor=Teller()).build()
    id = await asked(workflow.run("a"))
    with pytest.raises(ResponseRejected):  # a bad answer costs nothing
        await workflow.run(responses={id: 5})
    runs = [workflow.run(responses={id: Approval(True)}), workflow.run(responses={id: Approval(False)})]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    (result,) = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert result.get_outputs() == ["first", "published a"]
    assert [type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)] == [RunBusy]


async def test_answers_are_part_of_the_history_of_messages(storage: Any) -> None:
    id = await asked(build(storage).run("a", run_id="r"))
    await build(storage).run(run_id="r", responses={id: Approval(True)})
    head = await storage.get_latest(run_id="r")
    history = await storage.message_history(head.checkpoint_id)
    assert [message.data for message in history] == ["a", Approval(True)]
    assert history[1].reply is not None
    assert history[1].reply.request_id == id


async def test_types_named_only_in_a_response_handler_are_known() -> None:
    @dataclass
    class Local:
        n: int

    class Asker(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info(Local(n), Local)

        @response_handler
        async def take(self, original_request: Local, response: Local, ctx: WorkflowContext[None, int]) -> None:
            await ctx.yield_output(original_request.n + response.n)

    workflow = WorkflowBuilder(start_executor=Asker("a"), checkpoint_storage=InMemoryCheckpointStorage()).build()
    id = await asked(workflow.run(1))
    assert (await workflow.run(responses={id: {"n": 2}})).get_outputs() == [3]


@pytest.mark.parametrize("id", [5, b"x", "", ["q"], "\ud800"])
async def test_a_request_id_that_cannot_be_one_is_refused(id: Any) -> None:
    with pytest.raises(HandlerFailed, match="request_id must be a non-empty string"):
        await build(InMemoryCheckpointStorage(), request_id=id).run("a")


async def test_an_id_that_is_being_asked_with_is_refused_and_the_run_can_be_mended(storage: Any) -> None:
    wrong = [True]

    class Twice(Editor):
        @handler
        async def draft(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.request_info(Draft(text), Approval, request_id="q")
            if wrong:
                await ctx.request_info(Draft(text), Approval, request_id="q")

    workflow = WorkflowBuilder(name="w", start_executor=Twice(), checkpoint_storage=storage).build()
    with pytest.raises(HandlerFailed, match="'q' is open already"):
        await workflow.run("a", run_id="r")
    wrong.clear()
    assert await asked(workflow.run(run_id="r")) == "q"


async def test_an_answer_by_a_checkpoint_that_is_past_is_refused_and_starts_no_run(storage: Any) -> None:
    id = await asked(build(storage).run("a", run_id="r"))
    waiting = await storage.get_latest(run_id="r")
    await build(storage).run(run_id="r", responses={id: Approval(True)})
    count = len(await storage.list_checkpoint_ids())
    with pytest.raises(RunError, match="has moved on from checkpoint"):
        await build(storage).run(checkpoint_id=waiting.checkpoint_id, responses={id: Approval(False)})
    with pytest.raises(UnknownRequest):
        await build(storage).run(checkpoint_id=waiting.checkpoint_id, run_id="fork", responses={"nope": 1})
    assert len(await storage.list_checkpoint_ids()) == count
    fork = await build(storage).run(
        checkpoint_id=waiting.checkpoint_id, run_id="fork", responses={id: Approval(False, "no")}
    )
    assert fork.get_final_state() is WAITING


class Worker(Executor):
    """Fails until it is mended, and notes the key it was given."""

    def __init__(self, keys: list[str], broken: list[bool]) -> None:
        super().__init__("worker")
        self.keys, self.broken = keys, broken

    def clone(self) -> Worker:
        return Worker(self.keys, self.broken)

    @handler
    async def work(self, n: int, ctx: WorkflowContext[None, str]) -> None:
        self.keys.append(ctx.idempotency_key)
        if self.broken:
            raise ValueError("not yet")
        await ctx.yield_output("worked")


class Both(Executor):
    @handler
    async def begin(self, n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.request_info("well?", str, request_id="q")
        await ctx.send_message(n)

    @response_handler
    async def take(self, original_request: str, response: str, ctx: WorkflowContext[int, str]) -> None:
        await ctx.yield_output(response)


async def test_an_answer_that_comes_between_two_attempts_changes_no_key(storage: Any) -> None:
    keys: list[str] = []
    broken = [True]
    both = Both("both")
    worker = Worker(keys, broken)
    builder = WorkflowBuilder(name="w", start_executor=both, checkpoint_storage=storage)
    workflow = builder.add_edge(both, worker).build()
    with pytest.raises(HandlerFailed):
        await workflow.run(1, run_id="r")
    with pytest.raises(HandlerFailed):
        await workflow.run(run_id="r", responses={"q": "yes"})
    broken.clear()
    assert (await workflow.run(run_id="r")).get_outputs() == ["worked", "yes"]
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_the_same_answer_may_be_given_again_after_a_call_that_was_cut_short() -> None:
    inner = MemoryStore()
    id = await asked(build(BuiltInStorage(inner)).run("a", run_id="r"))
    with pytest.raises(Crash):  # it dies after the answer was posted, before it was taken in
        await build(BuiltInStorage(CrashingStore(inner, 2))).run(run_id="r", responses={id: Approval(True)})
    with pytest.raises(ResponseRejected, match="the first response stands"):
        await build(BuiltInStorage(inner)).run(run_id="r", responses={id: Approval(False)})
    result = await build(BuiltInStorage(inner)).run(run_id="r", responses={id: Approval(True)})
    assert result.get_outputs() == ["published a"]
    assert result.get_request_info_events() == []


async def test_a_question_whose_answer_is_in_the_mail_is_not_told_as_open() -> None:
    inner = MemoryStore()
    id = await asked(build(BuiltInStorage(inner)).run("a", run_id="r"))
    with pytest.raises(Crash):
        await build(BuiltInStorage(CrashingStore(inner, 2))).run(run_id="r", responses={id: Approval(True)})
    result = await build(BuiltInStorage(inner)).run(run_id="r")
    assert result.get_request_info_events() == []
    assert [event.state for event in result.status_timeline()][-2:] == [
        WorkflowRunState.IN_PROGRESS,
        WorkflowRunState.IDLE,
    ]


async def test_a_class_that_cannot_be_made_of_an_answer_rejects_it_whatever_it_raises() -> None:
    @dataclass
    class Picky:
        n: int

        def __post_init__(self) -> None:
            raise KeyError(self.n)

    class Asker(Executor):
        @handler
        async def ask(self, n: int, ctx: WorkflowContext) -> None:
            await ctx.request_info("well?", Picky)

        @response_handler
        async def take(self, original_request: str, response: Picky, ctx: WorkflowContext) -> None: ...

    workflow = WorkflowBuilder(start_executor=Asker("a"), checkpoint_storage=InMemoryCheckpointStorage()).build()
    id = await asked(workflow.run(1))
    with pytest.raises(ResponseRejected):
        await workflow.run(responses={id: {"n": 1}})
    with pytest.raises(TypeError, match="responses must be a mapping"):
        workflow.run(responses=[id])  # type: ignore[call-overload]

"""Questions of a sub-workflow: asked by the workflow around it, or answered by an executor beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from stepwell import (
    Executor,
    FileCheckpointStorage,
    HandlerFailed,
    InMemoryCheckpointStorage,
    RequestExpired,
    ResponseRejected,
    RunError,
    SQLiteCheckpointStorage,
    StoreUnavailable,
    UnknownRequest,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.response_types import schema_of, type_words
from stepwell.testing import Crash, CrashingStore
from stepwell.testing.faults.wrapped_store import WrappedStore
from stepwell.workflows import SubWorkflowRequest, SubWorkflowRequestMessage, SubWorkflowResponseMessage
from tests.support.nesting import (
    IDLE,
    WAITING,
    Ask,
    Asker,
    Book,
    End,
    Ok,
    SixMethods,
    Start,
    alone,
    around,
    asks,
    deep,
    ids,
)


@pytest.fixture(params=["memory", "sqlite", "file", "six methods"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Every way to keep a run over a restart."""
    made: dict[str, Callable[[], Any]] = {
        "memory": InMemoryCheckpointStorage,
        "sqlite": lambda: SQLiteCheckpointStorage(tmp_path / "runs.db"),
        "file": lambda: FileCheckpointStorage(tmp_path),
        "six methods": SixMethods,
    }
    return made[request.param]()


# ------------------------------------------------------------------------------------- answered from outside


@pytest.mark.parametrize("floors", [1, 3])
async def test_a_question_is_asked_outside_and_the_answer_finds_its_way_in(floors: int, kept: Any) -> None:
    """Each step with workflow objects of its own, as a new process would have them."""
    book = Book()
    first = await deep(alone(Asker(book)), floors, kept).run("a", run_id="r")
    (question,) = asks(first)
    assert (question.data, question.source_executor_id, question.response_type) == (Ask("a"), "sub", "Ok")
    assert question.response_schema["required"] == ["yes"]
    second = await deep(alone(Asker(book)), floors, kept).run(run_id="r", responses={question.request_id: Ok(False)})
    assert second.get_final_state() is WAITING
    (again,) = asks(second)
    assert again.data == Ask("a again")
    done = await deep(alone(Asker(book)), floors, kept).run(run_id="r", responses={again.request_id: {"yes": True}})
    assert done.get_outputs() == ["saw a", "a: False", "a again: True"]
    assert done.get_final_state() is IDLE
    assert book.lines == ["ask a", "said a False", "said a again True"]


@pytest.mark.parametrize("floors", [1, 3])
async def test_a_run_that_is_kept_nowhere_is_answered_too(floors: int) -> None:
    workflow = deep(alone(Asker()), floors)
    first = await workflow.run("a b")
    one, two = ids(first)
    second = await workflow.run(responses={two: Ok(True)})
    assert second.get_outputs() == ["saw a", "saw b", "b: True"]
    third = await workflow.run(responses={one: {"yes": False}})
    assert third.get_final_state() is WAITING
    done = await workflow.run(responses={asks(third)[0].request_id: Ok(True)})
    assert done.get_outputs() == ["saw a", "saw b", "b: True", "a: False", "a again: True"]


async def test_a_request_from_three_floors_down_is_emitted_once(kept: Any) -> None:
    result = await deep(alone(Asker()), 3, kept).run("a")
    assert [(event.path, event.executor_id) for event in result if event.type == "request_info"] == [((), "sub")]


async def test_answers_of_the_wrong_type_are_refused_outside_and_change_nothing(storage: Any) -> None:
    book = Book()
    result = await deep(alone(Asker(book)), 3, storage).run("a", run_id="r")
    (id,) = ids(result)
    before = await storage.list_checkpoint_ids()
    for wrong in ("yes", {"yes": "perhaps"}, {"no": True}, None):
        with pytest.raises(ResponseRejected, match=f"the response to '{id}' of 'sub' in run 'r'"):
            await deep(alone(Asker(book)), 3, storage).run(run_id="r", responses={id: wrong})
    with pytest.raises(UnknownRequest):
        await deep(alone(Asker(book)), 3, storage).run(run_id="r", responses={id: Ok(True), "other": Ok(True)})
    assert await storage.list_checkpoint_ids() == before
    assert book.lines == ["ask a"]
    done = await deep(alone(Asker(book)), 3, storage).run(run_id="r", responses={id: Ok(True)})
    assert done.get_outputs() == ["saw a", "a: True"]


async def test_the_first_answer_wins_also_for_a_question_of_the_inside(storage: Any) -> None:
    (id,) = ids(await around(alone(Asker()), storage).run("a", run_id="r"))
    runs = [around(alone(Asker()), storage).run(run_id="r", responses={id: Ok(True, str(n))}) for n in range(4)]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert (await around(alone(Asker()), storage).run(run_id="r")).get_outputs() == ["saw a", "a: True"]


class Survey(Executor):
    """Asks several things at once, and yields each answer as it comes."""

    def __init__(self, book: Book) -> None:
        super().__init__("survey")
        self.book = book

    @handler
    async def ask(self, names: str, ctx: WorkflowContext[None, str]) -> None:
        self.book.note("ask")
        for name in names.split(","):
            await ctx.request_info(name, bool, request_id=f"about {name}")

    @response_handler
    async def said(self, name: str, answer: bool, ctx: WorkflowContext[None, str]) -> None:
        self.book.note(name)
        await ctx.yield_output(f"{name}: {answer}")


@pytest.mark.parametrize("together", [True, False])
async def test_several_questions_of_one_run_are_answered_together_or_one_by_one(together: bool, kept: Any) -> None:
    book = Book()
    first = await deep(alone(Survey(book)), 2, kept).run("tea,milk,sugar", run_id="r")
    assert sorted(ids(first)) == ["about milk", "about sugar", "about tea"]
    answers = {"about milk": True, "about tea": False, "about sugar": True}
    if together:
        done = await deep(alone(Survey(book)), 2, kept).run(run_id="r", responses=answers)
    else:
        for id, answer in answers.items():
            done = await deep(alone(Survey(book)), 2, kept).run(run_id="r", responses={id: answer})
    assert sorted(done.get_outputs()) == ["milk: True", "sugar: True", "tea: False"]
    assert done.get_final_state() is IDLE
    assert book.times() == {"ask": 1, "milk": 1, "tea": 1, "sugar": 1}


async def test_answers_that_were_taken_in_together_lead_to_each_thing_once(storage: Any) -> None:
    """The commit that takes in the first answer fails; the second one takes in both."""

    class Hiccup(WrappedStore):
        failed = False

        async def write(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
            is_intake = name == "append" and args[0].entry.run_id != "r" and b'"kind":"intake"' in args[0].body
            if is_intake and not self.failed:
                self.failed = True
                raise StoreUnavailable("a hiccup")
            return await call()

    await around(alone(Survey(Book())), storage).run("tea,milk", run_id="r")
    book = Book()
    flawed = around(alone(Survey(book)), BuiltInStorage(Hiccup(storage._store.inner)))
    with pytest.raises(StoreUnavailable, match="a hiccup"):
        await flawed.run(run_id="r", responses={"about tea": True, "about milk": False})
    assert book.times() == {"tea": 1, "milk": 1}
    done = await around(alone(Survey(book)), storage).run(run_id="r")
    assert sorted(done.get_outputs()) == ["milk: False", "tea: True"]
    assert book.times() == {"tea": 1, "milk": 1}


async def test_runs_inside_may_ask_under_the_same_id_and_each_gets_its_answer(kept: Any) -> None:
    """The first keeps the id; the others are told apart by the run that asks."""

    def build() -> Workflow:
        return deep(alone(Asker(request_id="approve")), 2, kept)

    asked = asks(await build().run("a b c", run_id="r"))
    assert [event.data.text for event in asked] == ["a", "b", "c"]
    assert asked[0].request_id == "approve"
    assert all(event.request_id.startswith("approve@") for event in asked[1:])
    for event in reversed(asked):
        answer = {event.request_id: Ok(True, event.data.text)}
        done = await build().run(run_id="r", responses=answer)
    assert done.get_outputs() == ["saw a", "saw b", "saw c", "c: True", "b: True", "a: True"]
    assert done.get_final_state() is IDLE


async def test_a_question_of_the_run_itself_keeps_its_id(storage: Any) -> None:
    """Also if it comes after one of the inside in the same superstep, under the same id."""
    asker = Asker(id="own", request_id="approve")
    sub = WorkflowExecutor(alone(Asker(request_id="approve")), "sub")
    builder = WorkflowBuilder(name="outer", start_executor=Start("start"), checkpoint_storage=storage)
    outer = builder.add_fan_out_edges("start", [sub, asker]).add_edge(sub, End("end")).build()
    asked = {event.source_executor_id: event.request_id for event in asks(await outer.run("a", run_id="r"))}
    assert asked["own"] == "approve"
    assert asked["sub"].startswith("approve@")
    done = await outer.run(run_id="r", responses={asked["sub"]: Ok(True), asked["own"]: Ok(True)})
    assert done.get_outputs() == ["saw a", "saw a", "a: True", "a: True"]


@pytest.mark.long
async def test_a_long_talk_with_the_inside(kept: Any) -> None:
    """Every so many records one says everything: an answer that falls on it leads to the same."""

    class Chat(Executor):
        @handler
        async def begin(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.request_info(0, int, request_id="next")

        @response_handler
        async def said(self, last: int, number: int, ctx: WorkflowContext[None, str]) -> None:
            await ctx.yield_output(f"{last} then {number}")
            await ctx.request_info(number, int, request_id="next")

    rounds = 10 if isinstance(kept, SixMethods) else 36
    workflow = around(alone(Chat("chat")), kept)
    await workflow.run("x", run_id="r")
    for number in range(1, rounds):
        result = await workflow.run(run_id="r", responses={"next": number})
    assert result.get_outputs() == [f"{n - 1} then {n}" for n in range(1, rounds)]


async def test_a_deadline_inside_is_kept_by_the_run_around_it(storage: Any, later: Any) -> None:
    def build(**options: Any) -> Workflow:
        return deep(alone(Asker(deadline=timedelta(minutes=30), **options)), 2, storage)

    for name, options in (("with", {"default": Ok(True, "nobody")}), ("without", {})):
        (id,) = ids(await build(**options).run("a", run_id=name))
        assert (await storage.pending_requests(run_id=name))[0].deadline is not None
    assert await storage.ready_runs() == []
    later(minutes=31)
    assert sorted(due.run_id for due in await storage.ready_runs()) == ["with", "without"]
    assert (await build().run(run_id="with")).get_outputs() == ["saw a", "a: True"]
    with pytest.raises(RequestExpired, match="'sub' got no response; the deadline was"):
        await build().run(run_id="without")
    with pytest.raises(RequestExpired, match="too late"):
        await build().run(run_id="without", responses={id: Ok(True)})


async def test_a_default_that_becomes_due_while_the_inside_works_is_taken_once(storage: Any, later: Any) -> None:
    """The run inside leaves the time to the run around it."""
    book = Book()

    class Both(Executor):
        @handler
        async def ask(self, text: str, ctx: WorkflowContext[None, str]) -> None:
            await ctx.request_info("slow", int, request_id="slow")
            await ctx.request_info("late", int, request_id="late", deadline=timedelta(minutes=30), default=0)

        @response_handler
        async def said(self, which: str, number: int, ctx: WorkflowContext[None, str]) -> None:
            book.note(f"{which} {number}")
            if which == "slow":
                later(minutes=31)
            await ctx.yield_output(f"{which}: {number}")

    workflow = around(alone(Both("both")), storage)
    await workflow.run("a", run_id="r")
    done = await workflow.run(run_id="r", responses={"slow": 1})
    assert done.get_outputs() == ["slow: 1", "late: 0"]
    assert done.get_final_state() is IDLE
    assert book.lines == ["slow 1", "late 0"]


async def test_the_inside_is_not_answered_behind_the_back_of_the_run_around_it(storage: Any) -> None:
    inner = alone(Asker())
    result = await around(inner, storage).run("a", run_id="r")
    (id,) = ids(result)
    (inside,) = {event.run_id for event in result if event.path}
    assert inside is not None
    words = f"run '{inside}' is a sub-workflow run of 'r', .* respond to that run"
    with pytest.raises(RunError, match=words):
        await inner.run(run_id=inside, checkpoint_storage=storage, responses={id: Ok(True)})
    handle = inner.attach(inside, checkpoint_storage=storage, drive=True)
    with pytest.raises(RunError, match=words):
        await handle.respond({id: Ok(True)})
    with pytest.raises(RunError, match=words):
        await handle.send("more")
    with pytest.raises(RunError, match=words):
        await handle.restore((await handle.checkpoints())[0])
    assert (await inner.run(run_id=inside, checkpoint_storage=storage)).get_final_state() is WAITING
    done = await around(inner, storage).run(run_id="r", responses={id: Ok(True)})
    assert done.get_outputs() == ["saw a", "a: True"]


async def test_a_run_inside_that_was_cancelled_while_it_waits_takes_its_answer(storage: Any) -> None:
    inner = alone(Asker())
    result = await around(inner, storage).run("a", run_id="r")
    (id,) = ids(result)
    (inside,) = {event.run_id for event in result if event.path}
    assert inside is not None
    await inner.attach(inside, checkpoint_storage=storage, drive=True).cancel()
    done = await around(inner, storage).run(run_id="r", responses={id: Ok(True)})
    assert (done.get_outputs(), done.get_final_state()) == (["saw a", "a: True"], IDLE)


async def test_a_copy_of_the_inside_is_free_to_be_answered(storage: Any) -> None:
    inner = alone(Asker())
    result = await around(inner, storage).run("a", run_id="r")
    (id,) = ids(result)
    (inside,) = {event.run_id for event in result if event.path}
    head = await storage.get_latest(run_id=inside)
    copy = {"checkpoint_id": head.checkpoint_id, "run_id": "copy", "checkpoint_storage": storage}
    assert (await inner.run(**copy, responses={id: Ok(False)})).get_outputs() == ["saw a", "a: False"]
    assert sorted(one.run_id for one in await storage.pending_requests()) == ["copy", "r"]
    done = await around(inner, storage).run(run_id="r", responses={id: Ok(True)})
    assert done.get_outputs() == ["saw a", "a: True"]


async def test_answers_through_a_handle_reach_the_inside(storage: Any) -> None:
    handle = deep(alone(Asker()), 2, storage).start("a b", run_id="r")
    one, two = ids(await handle.result())
    await handle.respond({one: {"yes": True}})
    await handle.respond({two: Ok(True)})
    assert sorted((await handle.result()).get_outputs()) == ["a: True", "b: True", "saw a", "saw b"]
    assert await handle.status() is IDLE


# ----------------------------------------------------------------------------- answered by an executor beside it


class Boss(Executor):
    """Answers the questions of a sub-workflow."""

    def __init__(self, id: str = "boss", book: Book | None = None, times: int = 1) -> None:
        super().__init__(id)
        self.book, self.times = book or Book(), times

    @handler
    async def decide(
        self, question: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        self.book.note(f"{self.id} decides {question.source_event.data.text}")
        for _ in range(self.times):
            await ctx.send_message(question.create_response(Ok(True, self.id)), target_id=question.executor_id)


def with_boss(storage: Any, *bosses: Executor, condition: Any = None, book: Book | None = None, **options: Any) -> Any:
    """start → sub → end, with others beside the sub-workflow who may answer it."""
    sub = WorkflowExecutor(alone(Asker(book)), "sub", **options)
    builder = WorkflowBuilder(name="outer", start_executor=Start("start"), checkpoint_storage=storage)
    builder.add_edge("start", sub).add_edge(sub, End("end"))
    for boss in bosses:
        builder.add_edge(sub, boss, condition).add_edge(boss, sub)
    return builder.build()


@pytest.mark.parametrize("nowhere", [True, False])
async def test_an_executor_beside_it_that_takes_its_questions_may_answer(nowhere: bool, kept: Any) -> None:
    book = Book()
    result = await with_boss(None if nowhere else kept, Boss(book=book), book=book).run("a b")
    assert result.get_outputs() == ["saw a", "saw b", "a: True", "b: True"]
    assert result.get_request_info_events() == []
    assert result.get_final_state() is IDLE
    assert book.times() == {
        "ask a": 1,
        "boss decides a": 1,
        "said a True": 1,
        "ask b": 1,
        "boss decides b": 1,
        "said b True": 1,
    }


async def test_a_question_beside_it_says_what_its_event_would_say(storage: Any) -> None:
    got: list[SubWorkflowRequestMessage] = []

    @executor(id="look")
    async def look(question: SubWorkflowRequestMessage) -> None:
        got.append(question)

    result = await with_boss(storage, look).run("a")
    # Emitted once, as one of the run inside: the run around it does not ask anybody.
    (event,) = [event for event in result if event.type == "request_info"]
    assert (event.path, event.executor_id) == (("sub",), "asker")
    (question,) = got
    asked = question.source_event
    assert question.executor_id == "sub"
    assert (asked.request_id, asked.data, asked.response_type) == (event.request_id, Ask("a"), "Ok")
    assert (asked.source_executor_id, asked.response_schema) == ("asker", event.response_schema)


async def test_a_question_that_nobody_answers_is_not_passed_over_in_silence(storage: Any) -> None:
    @executor(id="look")
    async def look(question: SubWorkflowRequestMessage) -> None: ...

    result = await with_boss(storage, look).run("a")
    assert result.get_final_state() is IDLE
    (warning,) = [event.data for event in result if event.type == "warning"]
    assert "of 'sub' still waits for a response" in warning


async def test_with_propagate_request_its_questions_go_outside_all_the_same(storage: Any) -> None:
    book = Book()
    result = await with_boss(storage, Boss(book=book), propagate_request=True).run("a", run_id="r")
    (id,) = ids(result)
    assert book.lines == []
    done = await with_boss(storage, Boss(), propagate_request=True).run(run_id="r", responses={id: Ok(True)})
    assert done.get_outputs() == ["saw a", "a: True"]


async def test_a_question_that_a_condition_holds_back_goes_outside(storage: Any) -> None:
    def is_small(question: Any) -> bool:
        return isinstance(question, SubWorkflowRequestMessage) and question.source_event.data.text == "small"

    def build() -> Workflow:
        workflow: Workflow = with_boss(storage, Boss(), condition=is_small)
        return workflow

    result = await build().run("small large", run_id="r")
    (question,) = asks(result)
    assert question.data == Ask("large")
    assert result.get_outputs() == ["saw small", "saw large", "small: True"]
    assert [event for event in result if event.type == "warning"] == []
    done = await build().run(run_id="r", responses={question.request_id: Ok(True)})
    assert done.get_outputs() == ["saw small", "saw large", "small: True", "large: True"]


async def test_whoever_answers_may_ask_a_person_first(kept: Any) -> None:
    @dataclass
    class Shall:
        question: SubWorkflowRequestMessage

    class Careful(Executor):
        @handler
        async def decide(self, question: SubWorkflowRequestMessage, ctx: WorkflowContext) -> None:
            await ctx.request_info(Shall(question), bool)

        @response_handler
        async def said(self, shall: Shall, yes: bool, ctx: WorkflowContext[SubWorkflowResponseMessage]) -> None:
            answer = shall.question.create_response(Ok(yes, "careful"))
            await ctx.send_message(answer, target_id=shall.question.executor_id)

    first = await with_boss(kept, Careful("careful")).run("a", run_id="r")
    (question,) = asks(first)
    assert (question.source_executor_id, question.response_type) == ("careful", "bool")
    second = await with_boss(kept, Careful("careful")).run(run_id="r", responses={question.request_id: False})
    (again,) = asks(second)
    assert again.data.question.source_event.data == Ask("a again")
    done = await with_boss(kept, Careful("careful")).run(run_id="r", responses={again.request_id: True})
    assert done.get_outputs() == ["saw a", "a: False", "a again: True"]


@pytest.mark.parametrize("nowhere", [True, False])
async def test_of_several_answers_the_first_counts_and_the_others_are_told(nowhere: bool, kept: Any) -> None:
    book = Book()
    workflow = with_boss(None if nowhere else kept, Boss("one", times=2), Boss("two"), book=book)
    result = await workflow.run("a")
    assert result.get_outputs() == ["saw a", "a: True"]
    warnings = [event.data for event in result if event.type == "warning" and "is not used" in str(event.data)]
    assert [words.split(" to ")[0] for words in warnings] == ["the response of 'one'", "the response of 'two'"]
    assert book.lines == ["ask a", "said a True"]


async def test_an_answer_that_comes_too_late_is_told_and_harms_nothing(storage: Any) -> None:
    class Slow(Executor):
        """Takes a superstep longer than the other."""

        @handler
        async def decide(
            self,
            question: SubWorkflowRequestMessage,
            ctx: WorkflowContext[SubWorkflowRequestMessage | SubWorkflowResponseMessage],
        ) -> None:
            if ctx.get_source_executor_id() == "sub":
                await ctx.send_message(question, target_id="slow")
            else:
                await ctx.send_message(question.create_response(Ok(False)), target_id="sub")

    slow, boss, sub = Slow("slow"), Boss(), WorkflowExecutor(alone(Asker()), "sub")
    builder = WorkflowBuilder(name="outer", start_executor=sub, checkpoint_storage=storage)
    builder.add_fan_out_edges(sub, [slow, boss, End("end")]).add_edge(boss, sub).add_edge(slow, sub)
    result = await builder.add_edge(slow, slow).build().run("a")
    assert result.get_outputs() == ["saw a", "a: True"]
    assert [event.data.split(" to ")[0] for event in result if event.type == "warning"] == ["the response of 'slow'"]


@pytest.mark.long
@pytest.mark.parametrize("after", [True, False])
async def test_the_first_of_several_answers_counts_wherever_it_dies(after: bool, storage: Any) -> None:
    whole = CrashingStore(storage._store.inner)
    await with_boss(BuiltInStorage(whole), Boss("one"), Boss("two")).run("x", run_id="whole")
    for at in range(1, whole.writes + 1):
        book, run_id = Book(), f"{at}"
        try:
            dying = BuiltInStorage(CrashingStore(storage._store.inner, at, after=after))
            await with_boss(dying, Boss("one"), Boss("two"), book=book).run("a", run_id=run_id)
        except Crash:
            pass
        done = await with_boss(storage, Boss("one"), Boss("two"), book=book).run("a", run_id=run_id)
        assert done.get_outputs() == ["saw a", "a: True"], at
        assert book.times().get("said a True", 0) <= 2


class Mood(Enum):
    GOOD = "good"


RIGHT: list[tuple[Any, list[Any]]] = [
    (Ok, [Ok(True), {"yes": True}, {"yes": False, "by": "me"}]),
    (Ok | None, [Ok(True), {"yes": True}, None]),
    (bool, [True]),
    (int, [1]),
    (float, [1.5, 1]),
    (str, ["a"]),
    (Mood, [Mood.GOOD, "good"]),
    (Literal["yes", "no"], ["yes"]),
    (list[Ok], [[], [Ok(True)], [{"yes": True}]]),
    (dict[str, int], [{}, {"a": 1}]),
    (Any, [Ok(True), 1, None]),
]
WRONG: list[tuple[Any, list[Any]]] = [
    (Ok, ["yes", True, None, {}, {"no": True}, [True], Ask("a"), Mood.GOOD]),
    (Ok | None, ["yes", Ask("a")]),
    (bool, [1, "true", Ok(True)]),
    (int, ["1", 1.5, None]),
    (float, ["1"]),
    (str, [1, Ok(True)]),
    (Mood, ["bad", 1]),
    (Literal["yes", "no"], ["perhaps", True]),
    (list[Ok], [Ok(True), {"yes": True}, ["yes"]]),
    (dict[str, int], [["a"], "a"]),
]


def question_for(wanted: Any) -> SubWorkflowRequestMessage:
    known = ("asker", "str", type_words(wanted), json.loads(schema_of(wanted)), None, "child")
    return SubWorkflowRequestMessage(SubWorkflowRequest("q", "well?", *known), "sub")


@pytest.mark.parametrize(("wanted", "answers"), RIGHT, ids=[type_words(wanted) for wanted, _ in RIGHT])
def test_an_answer_of_the_type_asked_for_can_be_made(wanted: Any, answers: list[Any]) -> None:
    for answer in answers:
        made = question_for(wanted).create_response(answer)
        assert made.data == answer
        assert made.source_event.request_id == "q"


@pytest.mark.parametrize(("wanted", "answers"), WRONG, ids=[type_words(wanted) for wanted, _ in WRONG])
def test_an_answer_of_another_type_is_refused_when_it_is_made(wanted: Any, answers: list[Any]) -> None:
    for answer in answers:
        with pytest.raises(TypeError, match=r"'q' of 'sub' expects .*, not a "):
            question_for(wanted).create_response(answer)


@pytest.mark.parametrize(("wanted", "answer"), [(wanted, one) for wanted, answers in RIGHT for one in answers])
async def test_what_can_be_made_an_answer_is_taken_by_the_inside(wanted: Any, answer: Any) -> None:
    class Asking(Executor):
        @handler
        async def ask(self, number: int, ctx: WorkflowContext) -> None:
            await ctx.request_info("well?", wanted)

        @response_handler(request=str, response=wanted)
        async def take(self, question: Any, answer: Any, ctx: WorkflowContext[None, str]) -> None:
            await ctx.yield_output(type_words(wanted))

    @executor(id="boss")
    async def boss(question: SubWorkflowRequestMessage) -> SubWorkflowResponseMessage:
        return question.create_response(answer)

    sub = WorkflowExecutor(alone(Asking("asking")), "sub", allow_direct_output=True)
    builder = WorkflowBuilder(start_executor=sub, checkpoint_storage=InMemoryCheckpointStorage())
    result = await builder.add_edge(sub, boss).add_edge(boss, sub).build().run(1)
    assert result.get_outputs() == [type_words(wanted)]


async def test_an_answer_that_cannot_be_right_fails_whoever_makes_it(storage: Any) -> None:
    class Wrong(Boss):
        @handler
        async def decide(
            self, question: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
        ) -> None:
            await ctx.send_message(question.create_response("yes"), target_id="sub")

    with pytest.raises(HandlerFailed, match="expects Ok, not a str like 'yes'") as got:
        await with_boss(storage, Wrong()).run("a", run_id="r")
    assert isinstance(got.value.__cause__, TypeError)
    assert got.value.executor_id == "boss"
    assert (await with_boss(storage, Boss()).run(run_id="r")).get_outputs() == ["saw a", "a: True"]


async def test_an_executor_that_takes_anything_does_not_take_its_questions(storage: Any) -> None:
    @executor(id="log")
    async def log(message: object, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"log {message}")

    sub = WorkflowExecutor(alone(Asker()), "sub")
    workflow = WorkflowBuilder(start_executor=sub, checkpoint_storage=storage).add_edge(sub, log).build()
    result = await workflow.run("a")
    assert result.get_outputs() == ["log saw a"]
    assert [event.data for event in asks(result)] == [Ask("a")]


async def test_a_question_from_two_floors_down_may_be_answered_on_any_floor(storage: Any) -> None:
    answered = with_boss(None, Boss("middle"))
    result = await around(answered, storage).run("a", run_id="middle")
    assert result.get_outputs() == ["saw a", "a: True"]

    sub = WorkflowExecutor(around(alone(Asker()), name="between"), "sub")
    builder = WorkflowBuilder(name="outer", start_executor=sub, checkpoint_storage=storage)
    top = builder.add_edge(sub, Boss("top")).add_edge("top", sub).add_edge(sub, End("end")).build()
    result = await top.run("a", run_id="top")
    assert result.get_outputs() == ["saw a", "a: True"]

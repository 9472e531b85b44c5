"""LangGraph with durability="sync": async nodes with async savers, and plain nodes with blocking savers."""

import asyncio
import operator
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Annotated, Any, TypedDict

import machine
from crash import CRASHES, HANDLERS, LAST, Marks
from job import Job, Keeps, Laps, Subject
from langgraph.channels import DeltaChannel, Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send
from material import conversation, documents
from superstep_trace import Tracer

WARM = 10
MARGIN = 10  # supersteps that the engine adds to ours
CONNECTIONS = 20
KEEPS: Mapping[str, Keeps] = {
    "none": "none",
    "memory": "mem",
    "sqlite": "sync",
    "sqlite-blocking": "sync",
    "postgres": "sync",
    "postgres-blocking": "sync",
}
DURABLE = ("sqlite", "sqlite-blocking", "postgres", "postgres-blocking")
ASYNC_DURABLE = ("sqlite", "postgres")


def is_blocking(place: str) -> bool:
    return place.endswith("-blocking")


@asynccontextmanager
async def saver(place: str, job: Job, *, pooled: bool = False, is_set_up: bool = False) -> AsyncIterator[Any]:
    file = str(job.folder / "graph.db")
    match place:
        case "none":
            yield None
        case "memory":
            yield InMemorySaver()
        case "sqlite":
            async with AsyncSqliteSaver.from_conn_string(file) as opened:
                yield opened  # it sets itself up at the first use
        case "sqlite-blocking":
            with SqliteSaver.from_conn_string(file) as opened:
                opened.setup()
                yield opened
        case "postgres":
            async with postgres_saver(job, pooled) as opened:
                if not is_set_up:  # only a program that may find an empty database has to call it
                    await opened.setup()
                yield opened
        case "postgres-blocking":
            from langgraph.checkpoint.postgres import PostgresSaver

            with PostgresSaver.from_conn_string(job.dsn or "") as opened:
                opened.setup()
                yield opened


def load_drivers(place: str) -> None:
    """Import what a program that uses this saver imports at its top."""
    if place == "postgres":
        import_module("langgraph.checkpoint.postgres.aio")


@asynccontextmanager
async def postgres_saver(job: Job, pooled: bool) -> AsyncIterator[Any]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    if not pooled:
        async with AsyncPostgresSaver.from_conn_string(job.dsn or "") as opened:
            yield opened
        return
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(job.dsn or "", max_size=CONNECTIONS, kwargs=options, open=False) as pool:
        yield AsyncPostgresSaver(pool)


def node(act: Callable[[Any], Any], place: str) -> Callable[[Any], Any]:
    """Return the function itself, or a coroutine function that calls it."""
    if is_blocking(place):
        return act

    async def awaited(state: Any) -> Any:
        return act(state)

    return awaited


def looping(shape: type, act: Callable[[Any], Any], place: str, kept: Any) -> Any:
    """Build a graph of one node that decides whether it is called again."""
    graph = StateGraph(shape)
    graph.add_node("turn", node(act, place), destinations=("turn", END))
    graph.add_edge(START, "turn")
    return graph.compile(checkpointer=kept)


async def run(graph: Any, given: Any, place: str, *, limit: int, thread: str = "one", **options: Any) -> None:
    config = {"configurable": {"thread_id": thread}, "recursion_limit": limit + MARGIN}
    if place != "none":
        options["durability"] = "sync"
    if is_blocking(place):
        graph.invoke(given, config, **options)
    else:
        await graph.ainvoke(given, config, **options)


def onward(left: int) -> str:
    return "turn" if left else END


class Countdown(TypedDict):
    left: int


async def chain(job: Job, place: str) -> None:
    def turn(state: Countdown) -> Command:
        left = state["left"] - 1
        return Command(update={"left": left}, goto=onward(left))

    async with saver(place, job) as kept:
        graph = looping(Countdown, turn, place, kept)
        await run(graph, {"left": WARM}, place, limit=WARM, thread="warm")
        with job.counted():
            await run(graph, {"left": job["supersteps"]}, place, limit=job["supersteps"])


async def superstep(job: Job, place: str) -> None:
    tracer = Tracer("langgraph")

    def turn(state: Countdown) -> Command:
        tracer.mark()
        left = state["left"] - 1
        return Command(update={"left": left}, goto=onward(left))

    async with saver(place, job) as kept:
        graph = looping(Countdown, turn, place, kept)
        await run(graph, {"left": job["supersteps"]}, place, limit=job["supersteps"])
        tracer.note(job)


def extended(heard: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*heard, *(message for write in writes for message in write)]


class Talk(TypedDict):
    left: int
    heard: Annotated[list, operator.add]


class DeltaTalk(TypedDict):
    left: int
    heard: Annotated[list, DeltaChannel(extended)]


async def growth(job: Job, place: str, how: str = "full") -> None:
    turns, laps = job["turns"], Laps()
    messages = conversation(turns)

    def turn(state: Any) -> Command:
        laps.mark()
        left = state["left"] - 1
        return Command(update={"left": left, "heard": [messages[left]]}, goto=onward(left))

    async with saver(place, job) as kept:
        graph = looping(DeltaTalk if how == "delta" else Talk, turn, place, kept)
        await run(graph, {"left": WARM}, place, limit=WARM, thread="warm")
        laps.forget()
        with job.counted():
            await run(graph, {"left": turns}, place, limit=turns)
    laps.note_costs(job)


class Shelf(TypedDict):
    left: int
    count: int
    texts: list


async def big(job: Job, place: str) -> None:
    texts = documents(job["kib"])

    def turn(state: Shelf) -> Command:
        left, count = state["left"] - 1, state["count"] + 1
        if count == 2:
            job.start()
        update = {"left": left, "count": count}
        return Command(update=update | {"texts": texts} if count == 1 else update, goto=onward(left))

    async with saver(place, job) as kept:
        graph = looping(Shelf, turn, place, kept)
        await run(graph, {"left": job["supersteps"] + 1, "count": 0}, place, limit=job["supersteps"] + 1)
        job.stop()


class Count(TypedDict):
    number: int


async def prepare_history(job: Job, place: str) -> None:
    def turn(state: Count) -> Command:
        return Command(update={"number": state["number"] + 1}, goto="turn")

    async with saver(place, job) as kept:
        graph = looping(Count, turn, place, kept)
        for thread, length in (("few", job["few"]), ("many", job["checkpoints"])):
            with suppress(GraphRecursionError):  # the limit stops the run there
                await run(graph, {"number": 0}, place, limit=length - MARGIN, thread=thread)


async def history(job: Job, place: str) -> None:
    """Measure in a new process, in a store that `prepare_history` has filled."""
    called_at = 0.0

    def turn(state: Count) -> Command:
        nonlocal called_at
        called_at = time.perf_counter()
        return Command(update={"number": state["number"] + 1}, goto="turn")

    load_drivers(place)
    began = time.perf_counter()
    async with saver(place, job, is_set_up=True) as kept:
        graph = looping(Count, turn, place, kept)
        await run(graph, None, place, limit=0, thread="many", interrupt_after=["turn"])
        job.notes["open_to_handler_ms"] = (called_at - began) * 1000
        job.notes["process_to_handler_ms"] = (machine.seconds_since_start() - time.perf_counter() + called_at) * 1000
        for _ in range(job["looks"]):
            for thread in ("few", "many"):
                config: Any = {"configurable": {"thread_id": thread}}
                with job.lap(f"latest_ms_{thread}"):
                    await kept.aget_tuple(config)
                with job.lap(f"page_ms_{thread}"):
                    assert [one async for one in kept.alist(config, limit=job["page"])]
                began = time.perf_counter()
                with job.lap(f"resume_ms_{thread}"):
                    await run(graph, None, place, limit=0, thread=thread, interrupt_after=["turn"])
                job.note_lap(f"next_ms_{thread}", called_at - began)


class Fan(TypedDict):
    rounds: int
    done: Annotated[list, Topic(int)]


async def fanout(job: Job, place: str) -> None:
    def hub(state: Fan) -> Command:
        left = state["rounds"] - 1
        if left < 0:
            return Command(update={"rounds": left}, goto=END)
        return Command(update={"rounds": left}, goto=[Send("work", number) for number in range(job["width"])])

    def work(number: int) -> dict[str, int]:
        return {"done": number}

    graph = StateGraph(Fan)
    graph.add_node("hub", node(hub, place), destinations=("work", END))
    graph.add_node("work", node(work, place))
    graph.add_edge(START, "hub")
    graph.add_edge("work", "hub")
    async with saver(place, job) as kept:
        compiled = graph.compile(checkpointer=kept)
        await run(compiled, {"rounds": 1}, place, limit=10, thread="warm")
        with job.counted():
            await run(compiled, {"rounds": job["rounds"]}, place, limit=3 * job["rounds"])


class NumberedCountdown(TypedDict):
    run: int
    left: int


async def many(job: Job, place: str) -> None:
    laps, limit = Laps(), job["supersteps"]

    def turn(state: NumberedCountdown) -> Command:
        laps.mark(state["run"])
        left = state["left"] - 1
        return Command(update={"left": left}, goto=onward(left))

    async with saver(place, job, pooled=True) as kept:
        graph = looping(NumberedCountdown, turn, place, kept)
        await run(graph, {"run": -1, "left": WARM}, place, limit=WARM, thread="warm")
        laps.forget()
        with job.counted():
            await asyncio.gather(
                *(
                    run(graph, {"run": number, "left": limit}, place, limit=limit, thread=f"r{number}")
                    for number in range(job["runs"])
                )
            )
    laps.note_latencies(job)


class Ten(TypedDict):
    done: Annotated[list, operator.add]


async def crash(job: Job, place: str) -> None:
    marks = Marks(job)

    async def begin(state: Ten) -> Command:
        return Command(goto=[Send("work", number) for number in range(HANDLERS)])

    async def work(number: int) -> dict[str, list[int]]:
        marks.called(number)
        if number == LAST and not job.again:
            await asyncio.sleep(3600)
        marks.returns()
        return {"done": [number]}

    graph = StateGraph(Ten)
    graph.add_node("begin", begin, destinations=("work",))
    graph.add_node("work", work)
    graph.add_edge(START, "begin")
    async with saver(place, job) as kept:
        compiled = graph.compile(checkpointer=kept)
        await run(compiled, None if job.again else {"done": []}, place, limit=10)
        found = await compiled.aget_state({"configurable": {"thread_id": "one"}})
        assert len(found.values["done"]) == HANDLERS


def _subject(case: str, place: str, run: Any, how: str | None = None, prepare: Any = None) -> Subject:
    name = "langgraph" if place == "none" else f"langgraph-{place}"
    named = name if how is None else f"{name}-{how}"
    options = {} if how is None else {"how": how}
    postgres = place.startswith("postgres")
    run = partial(run, place=place, **options)
    return Subject(case, named, KEEPS[place], run, postgres=postgres, prepare=prepare)


SUBJECTS = [
    *(_subject("chain", place, chain) for place in KEEPS),
    *(_subject("growth", place, growth) for place in DURABLE),
    *(_subject(case, place, growth, "delta") for case in ("growth", "long") for place in DURABLE),
    *(_subject("big", place, big) for place in DURABLE),
    *(_subject("history", place, history, prepare=partial(prepare_history, place=place)) for place in ASYNC_DURABLE),
    _subject("superstep", "sqlite", superstep),
    *(_subject("fanout", place, fanout) for place in KEEPS),
    *(_subject("many", place, many) for place in ("none", "memory", *ASYNC_DURABLE)),
    *(_subject(case, place, crash) for case in CRASHES for place in ASYNC_DURABLE),
]

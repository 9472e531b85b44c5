"""Programs: checkpoints, and resuming from each of them."""

# A program's `af` is a module that is known only when it runs, and handlers are annotated with its classes.
# mypy: ignore-errors

from datetime import UTC, datetime
from typing import Any, Never

import agent_framework

from tests.compat.programs.graphs import Order, collector, forwarder, sender
from tests.compat.programs.requests import Question, asker

_OWN = [f"{Order.__module__}:{Order.__qualname__}"]
_ASKED = [f"{Question.__module__}:{Question.__qualname__}"]


def keeper(af, id):
    """Return an executor that keeps what it got, also in checkpoints."""

    class Keeper(af.Executor):
        def __init__(self, id):
            super().__init__(id)
            self.kept = []

        @af.handler
        async def keep(self, message: str, ctx: af.WorkflowContext[str, Any]) -> None:
            self.kept.append(message)
            await ctx.yield_output(list(self.kept))
            if len(message) < 4:
                await ctx.send_message(message + "x")

        async def on_checkpoint_save(self):
            return {"kept": self.kept}

        async def on_checkpoint_restore(self, state):
            self.kept = list(state["kept"])

    return Keeper(id)


def _looping(af, storage):
    a, b = keeper(af, "a"), keeper(af, "b")
    builder = af.WorkflowBuilder(name="looping", start_executor=a, checkpoint_storage=storage)
    return builder.add_edge(a, b).add_edge(b, a).build()


def _summary(checkpoint):
    messages = {source: [m.data for m in sent] for source, sent in checkpoint.messages.items()}
    state = {key: value for key, value in checkpoint.state.items() if not key.startswith("_")}
    pending = [event.data for event in checkpoint.pending_request_info_events.values()]
    return checkpoint.workflow_name, sorted(messages.values(), key=repr), state, pending, checkpoint.metadata


def _files(af):
    names = [f"{cls.__module__}:{cls.__qualname__}" for cls in (Order, Question)]
    return af.FileCheckpointStorage(af.folder, allowed_checkpoint_types=names)


async def _storages(af):
    return [af.InMemoryCheckpointStorage(), _files(af)]


async def what_is_stored(af, trace):
    for storage in await _storages(af):
        workflow = _looping(af, storage)
        trace.result(await workflow.run("x"))
        checkpoints = await storage.list_checkpoints(workflow_name="looping")
        by_time = sorted(checkpoints, key=lambda checkpoint: checkpoint.timestamp)
        trace.note([checkpoint.iteration_count for checkpoint in by_time])
        trace.note([_summary(checkpoint) for checkpoint in by_time])
        trace.note([checkpoint.state.get("_executor_state") for checkpoint in by_time])
        ids = [checkpoint.checkpoint_id for checkpoint in by_time]
        trace.note([c.previous_checkpoint_id == before for c, before in zip(by_time, [None, *ids], strict=False)])
        trace.note(sorted(ids) == sorted(await storage.list_checkpoint_ids(workflow_name="looping")))
        latest = await storage.get_latest(workflow_name="looping")
        trace.note(latest.graph_signature_hash == workflow.graph_signature_hash)
        trace.note(latest.checkpoint_id == ids[-1], workflow.get_last_checkpoint_id() == ids[-1])
        trace.note(await storage.get_latest(workflow_name="other"), await storage.list_checkpoints(workflow_name="o"))


async def resume_at_every_checkpoint(af, trace):
    storage = af.InMemoryCheckpointStorage()
    await _looping(af, storage).run("x")
    checkpoints = sorted(await storage.list_checkpoints(workflow_name="looping"), key=lambda c: c.timestamp)
    for checkpoint in checkpoints:
        workflow = _looping(af, storage)
        trace.result(await workflow.run(checkpoint_id=checkpoint.checkpoint_id))
        trace.note([executor.kept for executor in workflow.executors.values()])


async def stream_from_a_checkpoint(af, trace):
    storage = _files(af)
    await _looping(af, storage).run("x")
    checkpoints = sorted(await storage.list_checkpoints(workflow_name="looping"), key=lambda c: c.timestamp)
    await trace.stream(_looping(af, storage).run(checkpoint_id=checkpoints[1].checkpoint_id, stream=True))


async def resume_on_the_same_object(af, trace):
    storage = af.InMemoryCheckpointStorage()
    workflow = _looping(af, storage)
    await workflow.run("x")
    checkpoints = sorted(await storage.list_checkpoints(workflow_name="looping"), key=lambda c: c.timestamp)
    trace.result(await workflow.run(checkpoint_id=checkpoints[2].checkpoint_id))
    trace.result(await workflow.run("xxx"))


async def storage_of_a_call(af, trace):
    storage = af.InMemoryCheckpointStorage()
    workflow = _looping(af, None)
    await workflow.run("xx")
    trace.result(await workflow.run("x", checkpoint_storage=storage))
    checkpoints = sorted(await storage.list_checkpoints(workflow_name="looping"), key=lambda c: c.timestamp)
    trace.note(len(checkpoints) >= 4)
    fresh = _looping(af, None)
    trace.result(await fresh.run(checkpoint_id=checkpoints[-2].checkpoint_id, checkpoint_storage=storage))
    trace.result(await workflow.run("xxx"))


async def state_in_checkpoints(af, trace):
    class Counts(af.Executor):
        @af.handler
        async def count(self, n: int, ctx: af.WorkflowContext[int, Any]) -> None:
            ctx.set_state("seen", [*ctx.get_state("seen", []), n])
            ctx.set_state("order", Order(n))
            if n < 3:
                await ctx.send_message(n + 1)
            else:
                await ctx.yield_output((ctx.get_state("seen"), ctx.get_state("order")))

    def build():
        one, two = Counts("one"), Counts("two")
        builder = af.WorkflowBuilder(name="counts", start_executor=one, checkpoint_storage=storage)
        return builder.add_edge(one, two).add_edge(two, one).build()

    storage = af.InMemoryCheckpointStorage()
    trace.result(await build().run(0))
    for checkpoint in sorted(await storage.list_checkpoints(workflow_name="counts"), key=lambda c: c.timestamp)[:-1]:
        trace.note(_summary(checkpoint))
        trace.result(await build().run(checkpoint_id=checkpoint.checkpoint_id))


def _asking(af, storage):
    asks, end = asker(af, "asks", "age of"), collector(af, "end")
    builder = af.WorkflowBuilder(name="asking", start_executor=asks, checkpoint_storage=storage)
    return builder.add_edge(asks, end).build()


async def respond_after_a_restart(af, trace):
    for storage in await _storages(af):
        (event,) = (await _asking(af, storage).run("Ann")).get_request_info_events()
        latest = await storage.get_latest(workflow_name="asking")
        trace.note(_summary(latest))
        workflow = _asking(af, storage)
        result = await workflow.run(checkpoint_id=latest.checkpoint_id)
        trace.result(result)
        (again,) = result.get_request_info_events()
        trace.note(again.request_id == event.request_id, again.request_type is Question, again.response_type is str)
        trace.result(await workflow.run(responses={again.request_id: "41"}))


async def respond_with_a_checkpoint(af, trace):
    storage = _files(af)
    (event,) = (await _asking(af, storage).run("Ann")).get_request_info_events()
    latest = await storage.get_latest(workflow_name="asking")
    workflow, answer = _asking(af, storage), {event.request_id: "41"}
    await trace.stream(workflow.run(checkpoint_id=latest.checkpoint_id, responses=answer, stream=True))
    await trace.attempt(lambda: _asking(af, storage).run(checkpoint_id=latest.checkpoint_id, responses={"no": "x"}))


async def respond_twice_to_one_checkpoint(af, trace):
    storage = af.InMemoryCheckpointStorage()
    (event,) = (await _asking(af, storage).run("Ann")).get_request_info_events()
    latest = await storage.get_latest(workflow_name="asking")
    for answer in ("41", "42"):
        responses = {event.request_id: answer}
        workflow = _asking(af, storage)
        trace.result(await workflow.run(checkpoint_id=latest.checkpoint_id, responses=responses))


async def missing_checkpoints(af, trace):
    storage = af.InMemoryCheckpointStorage()
    workflow = _looping(af, storage)
    await trace.attempt(lambda: workflow.run(checkpoint_id="nothing"))
    await trace.attempt(lambda: _looping(af, None).run(checkpoint_id="nothing"))
    await trace.attempt(lambda: storage.load("nothing"))
    trace.note(await storage.delete("nothing"))


async def a_changed_graph(af, trace):
    storage = af.InMemoryCheckpointStorage()
    await _looping(af, storage).run("x")
    latest = await storage.get_latest(workflow_name="looping")
    a, other = keeper(af, "a"), keeper(af, "other")
    builder = af.WorkflowBuilder(name="looping", start_executor=a, checkpoint_storage=storage).add_edge(a, other)
    await trace.attempt(lambda: builder.build().run(checkpoint_id=latest.checkpoint_id))


async def deleted_checkpoints(af, trace):
    storage = af.InMemoryCheckpointStorage()
    await _looping(af, storage).run("xxx")
    ids = await storage.list_checkpoint_ids(workflow_name="looping")
    trace.note(await storage.delete(ids[0]), await storage.delete(ids[0]))
    trace.note(len(await storage.list_checkpoint_ids(workflow_name="looping")) == len(ids) - 1)


async def checkpoints_made_by_hand(af, trace):
    for storage in await _storages(af):
        made = af.WorkflowCheckpoint("hand", "hash", state={"a": [1, Order(2)]}, iteration_count=3, metadata={"m": 1})
        trace.note(await storage.save(made) == made.checkpoint_id)
        loaded = await storage.load(made.checkpoint_id)
        trace.note(loaded.state, loaded.iteration_count, loaded.metadata, loaded.workflow_name)
        trace.note(loaded.timestamp == made.timestamp)
        trace.note(loaded.graph_signature_hash, loaded.previous_checkpoint_id, loaded.version)


async def a_storage_of_ones_own(af, trace):
    class Own:
        def __init__(self):
            self.kept = {}

        async def save(self, checkpoint):
            self.kept[checkpoint.checkpoint_id] = checkpoint
            return checkpoint.checkpoint_id

        async def load(self, checkpoint_id):
            return self.kept[checkpoint_id]

        async def list_checkpoints(self, *, workflow_name):
            return [checkpoint for checkpoint in self.kept.values() if checkpoint.workflow_name == workflow_name]

        async def delete(self, checkpoint_id):
            return self.kept.pop(checkpoint_id, None) is not None

        async def get_latest(self, *, workflow_name):
            found = await self.list_checkpoints(workflow_name=workflow_name)
            return max(found, key=lambda checkpoint: checkpoint.timestamp, default=None)

        async def list_checkpoint_ids(self, *, workflow_name):
            return [checkpoint.checkpoint_id for checkpoint in await self.list_checkpoints(workflow_name=workflow_name)]

    storage = Own()
    trace.note((await _looping(af, storage).run("x")).get_outputs())
    ids = await storage.list_checkpoint_ids(workflow_name="looping")
    trace.note((await _looping(af, storage).run(checkpoint_id=ids[1])).get_outputs())


async def fan_in_buffers_survive(af, trace):
    def build():
        start, fast, slow = sender(af, "start", "x"), forwarder(af, "fast"), forwarder(af, "slow")
        later, end = forwarder(af, "later", str.upper), collector(af, "end", list[str])
        builder = af.WorkflowBuilder(name="join", start_executor=start, checkpoint_storage=storage)
        builder.add_fan_out_edges(start, [fast, slow]).add_edge(slow, later)
        return builder.add_fan_in_edges([fast, later], end).build()

    storage = af.InMemoryCheckpointStorage()
    await build().run("go")
    for checkpoint in sorted(await storage.list_checkpoints(workflow_name="join"), key=lambda c: c.timestamp)[:-1]:
        trace.note((await build().run(checkpoint_id=checkpoint.checkpoint_id)).get_outputs())


async def resume_after_a_failure(af, trace):
    broken = [True]

    class Breaks(af.Executor):
        @af.handler
        async def work(self, message: str, ctx: af.WorkflowContext[Never, str]) -> None:
            if broken[0]:
                raise ConnectionError("down")
            await ctx.yield_output(message)

    def build():
        start, end = forwarder(af, "start", str.upper), Breaks("end")
        builder = af.WorkflowBuilder(name="breaks", start_executor=start, checkpoint_storage=storage)
        return builder.add_edge(start, end).build()

    storage = af.InMemoryCheckpointStorage()
    await trace.attempt(lambda: build().run("go"))
    latest = await storage.get_latest(workflow_name="breaks")
    broken[0] = False
    trace.result(await build().run(checkpoint_id=latest.checkpoint_id))


async def pause_checkpoint(af, trace):
    storage = af.InMemoryCheckpointStorage()
    workflow = _asking(af, storage)
    (event,) = (await workflow.run("Ann")).get_request_info_events()
    latest = await storage.get_latest(workflow_name="asking")
    trace.note(await workflow.resolve_pause_checkpoint_id([event.request_id]) == latest.checkpoint_id)
    trace.note(await workflow.resolve_pause_checkpoint_id(["other"]), await workflow.resolve_pause_checkpoint_id([]))


async def checkpoints_of_ones_own(af, trace):
    order = Order(3)
    event = af.WorkflowEvent.request_info("r", "asks", order, bool)
    made = af.WorkflowCheckpoint(
        "own",
        "hash",
        messages={"a": [af.WorkflowMessage(data=order, source_id="a", target_id="b")], "c": [{"data": 1}]},
        state={"tuple": (1, None), "set": frozenset({2}), "when": datetime(2030, 1, 2, tzinfo=UTC), "order": order},
        pending_request_info_events={"r": event, "s": {"data": 1}},
        iteration_count=4,
        metadata={"by": {"hand": True}},
    )
    for storage in (af.InMemoryCheckpointStorage(), af.FileCheckpointStorage(af.folder, allowed_checkpoint_types=_OWN)):
        trace.note(await storage.save(made) == made.checkpoint_id)
        loaded = await storage.load(made.checkpoint_id)
        trace.note(loaded.messages, loaded.state, loaded.iteration_count, loaded.metadata, loaded.version)
        asked = loaded.pending_request_info_events
        trace.note(asked["r"].data, asked["r"].request_type, asked["r"].response_type, asked["s"])
        loaded.metadata["by"]["hand"] = False
        trace.note((await storage.get_latest(workflow_name="own")).metadata)
        trace.note(await storage.delete(made.checkpoint_id), await storage.delete(made.checkpoint_id))


async def a_run_from_a_checkpoint_of_ones_own(af, trace):
    storage = af.InMemoryCheckpointStorage()
    workflow = _asking(af, storage)
    (asker,) = [id for id in workflow.executors if workflow.executors[id].is_request_response_capable]
    made = af.WorkflowCheckpoint(
        workflow.name,
        workflow.graph_signature_hash,
        pending_request_info_events={"r": af.WorkflowEvent.request_info("r", asker, "Ann", str)},
    )
    result = await workflow.run(checkpoint_id=await storage.save(made))
    trace.note([event.request_id for event in result.get_request_info_events()], result.get_final_state())
    empty = af.WorkflowCheckpoint(workflow.name, workflow.graph_signature_hash, state={"n": 1})
    trace.note((await _asking(af, storage).run(checkpoint_id=await storage.save(empty))).get_final_state())


async def storages_of_the_framework_itself(af, trace):
    for storage in (agent_framework.InMemoryCheckpointStorage(), agent_framework.FileCheckpointStorage(af.folder)):
        trace.note((await _looping(af, storage).run("x")).get_outputs())
        latest = await storage.get_latest(workflow_name="looping")
        trace.note(latest.workflow_name, latest.iteration_count, latest.messages)
        ids = await storage.list_checkpoint_ids(workflow_name="looping")
        for checkpoint in sorted(await storage.list_checkpoints(workflow_name="looping"), key=lambda c: c.timestamp):
            result = await _looping(af, storage).run(checkpoint_id=checkpoint.checkpoint_id)
            trace.note(checkpoint.checkpoint_id in ids, result.get_outputs())


async def requests_in_a_storage_of_the_framework_itself(af, trace):
    storage = agent_framework.FileCheckpointStorage(af.folder, allowed_checkpoint_types=_ASKED)
    await _asking(af, storage).run("Ann")
    latest = await storage.get_latest(workflow_name="asking")
    workflow = _asking(af, storage)
    (event,) = (await workflow.run(checkpoint_id=latest.checkpoint_id)).get_request_info_events()
    trace.note(event.data)
    trace.note((await workflow.run(responses={event.request_id: 30})).get_outputs())


async def a_stream_that_is_left_and_resumed_at_once(af, trace):
    storage = af.InMemoryCheckpointStorage()
    stream = _looping(af, storage).run("x", stream=True)
    starts = 0
    while True:
        output = None
        starts += 1
        async for event in stream:
            if event.type == "output":
                output = event.data
            if event.type == "superstep_completed":
                break
        else:
            break
        latest = await storage.get_latest(workflow_name="looping")
        # The stream that was left is still there when the next one is made.
        stream = _looping(af, storage).run(checkpoint_id=latest.checkpoint_id, stream=True)
    trace.note(starts > 2, output)

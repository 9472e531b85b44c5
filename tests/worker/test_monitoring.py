"""Those who watch over a worker get answers: by HTTP, for Prometheus, and through OpenTelemetry."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from opentelemetry import metrics as otel
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from stepwell import InMemoryCheckpointStorage, StoreUnavailable, WorkflowBuilder, WorkflowContext, executor
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.lease import this_process
from stepwell.worker import Worker
from stepwell.worker import metrics as metrics_module
from stepwell.worker.health import answering
from stepwell.worker.metrics import Metric, to_prometheus
from tests.worker.samples import all_are, asking, counting, eventually, serving, standings


def values_of(metrics: list[Metric]) -> dict[str, float]:
    """What is reported, by name and label."""
    return {
        " ".join([metric.name, *(value for _, value in labels)]): number
        for metric in metrics
        for labels, number in metric.values.items()
    }


async def get(port: int, target: str, *, method: str = "GET") -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: worker\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


async def test_a_worker_counts_what_it_does(storage: BuiltInStorage) -> None:
    workflow, waiting = counting(storage), asking(storage)
    await workflow.submit(0, run_id="done")
    await waiting.submit("?", run_id="waits")
    await workflow.submit(0, run_id="orphan")
    dead = replace(this_process("of the dead"), pid=2**22 + 1, started="0")
    await storage._store.acquire("orphan", dead, seconds=3600)
    worker = Worker(storage, [workflow, waiting], slots=5)
    before = values_of(await worker.metrics())
    assert (before["runs running"], before["runs_ready"]) == (3, 3)
    async with serving(worker):

        async def is_done() -> bool:
            ends = sorted((await standings(storage)).values()) == ["completed", "completed", "waiting"]
            return ends and values_of(await worker.metrics())["worker_drives"] == 3

        await eventually(is_done)  # a drive is counted when it has ended
        values = values_of(await worker.metrics())
    assert (values["runs completed"], values["runs waiting"], values["runs_ready"]) == (2, 1, 0)
    assert values["requests_open"] == 1
    assert values["worker_commits"] == 4 + 4 + 1
    assert values["worker_takeovers"] == 1
    assert (values["worker_slots"], values["worker_slots_busy"]) == (5, 0)
    assert (values["worker_refused_commits"], values["worker_failed_runs"]) == (0, 0)


async def test_requests_of_a_cancelled_run_are_not_counted(storage: BuiltInStorage) -> None:
    workflow = asking(storage)
    await workflow.run("?", run_id="waits")
    worker = Worker(storage, [workflow])
    assert values_of(await worker.metrics())["requests_open"] == 1
    await workflow.cancel("waits")
    async with serving(worker):

        async def is_cancelled() -> bool:
            return await standings(storage) == {"waits": "cancelled"}

        await eventually(is_cancelled)
    assert values_of(await worker.metrics())["requests_open"] == 0


async def test_the_age_of_the_oldest_ready_run_is_known(storage: BuiltInStorage) -> None:
    workflow = counting(storage)
    await workflow.submit(0, run_id="r")
    await asyncio.sleep(0.2)
    age = values_of(await Worker(storage, [workflow]).metrics())["runs_ready_age_seconds"]
    assert 0.2 <= age < 30


async def test_failures_and_refusals_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = InMemoryCheckpointStorage()

    @executor(id="fails")
    async def fail(text: str, ctx: WorkflowContext[None, str]) -> None:
        raise ValueError("no")

    @executor(id="loses")
    async def lose(text: str, ctx: WorkflowContext[None, str]) -> None:
        other = replace(this_process("another"), machine="elsewhere")
        entry = await storage._store.run("loses")
        assert entry is not None
        assert entry.lease is not None
        await storage._store.release("loses", entry.lease.owner)
        await storage._store.acquire("loses", other, seconds=3600)

    failing = WorkflowBuilder(name="failing", start_executor=fail, checkpoint_storage=storage).build()
    losing = WorkflowBuilder(name="losing", start_executor=lose, checkpoint_storage=storage).build()
    await failing.submit("x", run_id="fails")
    await losing.submit("x", run_id="loses")
    worker = Worker(storage, [failing, losing])
    async with serving(worker):

        async def is_over() -> bool:
            values = values_of(await worker.metrics())
            return (values["worker_failed_runs"], values["worker_refused_commits"]) == (1, 1)

        await eventually(is_over)


async def test_the_text_for_prometheus() -> None:
    metrics = [
        Metric("worker_commits", "Commits of this worker", "counter", {(): 3}),
        Metric("runs", "Runs", "gauge", {(("status", "waiting"),): 2, (("status", 'a"b\\c\n'),): 0.5}),
    ]
    assert to_prometheus(metrics) == (
        "# HELP stepwell_worker_commits_total Commits of this worker.\n"
        "# TYPE stepwell_worker_commits_total counter\n"
        "stepwell_worker_commits_total 3\n"
        "# HELP stepwell_runs Runs.\n"
        "# TYPE stepwell_runs gauge\n"
        'stepwell_runs{status="waiting"} 2\n'
        'stepwell_runs{status="a\\"b\\\\c\\n"} 0.5\n'
    )


async def test_a_worker_answers_by_http() -> None:
    storage = InMemoryCheckpointStorage()
    workflow = counting(storage)
    worker = Worker(storage, [workflow])
    async with answering("127.0.0.1", 0, is_ready=worker.is_ready, metrics=worker.metrics) as port:
        assert await get(port, "/live") == (200, "alive\n")
        assert await get(port, "/ready") == (503, "not ready\n")
        async with serving(worker):
            await workflow.submit(0, run_id="r")
            await all_are(storage, "completed")
            assert await get(port, "/ready") == (200, "ready\n")
            status, text = await get(port, "/metrics?x=1")
            assert status == 200
            assert 'stepwell_runs{status="completed"} 1\n' in text
            assert await get(port, "/metrics", method="HEAD") == (200, "")
        assert await get(port, "/ready") == (503, "not ready\n")
        assert (await get(port, "/else"))[0] == 404
        assert (await get(port, "/live", method="POST"))[0] == 405


async def test_what_is_not_http_hurts_nobody() -> None:
    worker = Worker(storage := InMemoryCheckpointStorage(), [counting(storage)])
    async with answering("127.0.0.1", 0, is_ready=worker.is_ready, metrics=worker.metrics) as port:
        for sent in (b"", b"\r\n\r\n", b"one\r\n\r\n", b"x" * 20000, b"GET /live\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            if writer.can_write_eof():
                writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        assert await get(port, "/live") == (200, "alive\n")


async def test_a_worker_without_its_store_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = InMemoryCheckpointStorage()
    worker = Worker(storage, [counting(storage)])

    async def away(*args: object, **options: object) -> object:
        raise StoreUnavailable("nobody answers")

    monkeypatch.setattr(storage._store, "ready", away)
    async with answering("127.0.0.1", 0, is_ready=worker.is_ready, metrics=worker.metrics) as port, serving(worker):
        await asyncio.sleep(0.05)
        assert await get(port, "/ready") == (503, "not ready\n")
        assert await get(port, "/metrics") == (503, "nobody answers\n")


async def test_the_same_through_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(otel, "get_meter_provider", lambda: provider)
    storage = InMemoryCheckpointStorage()
    monkeypatch.setattr(metrics_module, "_REFRESHED_EVERY", 0.02)
    workflow = counting(storage)
    await workflow.submit(0, run_id="r")
    worker = Worker(storage, [workflow], slots=4)
    async with serving(worker):
        await all_are(storage, "completed")
        await asyncio.sleep(0.1)
        data, measured = reader.get_metrics_data(), values_of(await worker.metrics())
    assert data is not None
    values = {
        " ".join([metric.name.removeprefix("stepwell."), *map(str, (point.attributes or {}).values())]): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }
    assert (values["worker_slots"], values["worker_commits"], values["runs completed"]) == (4, 4, 1)
    assert {name: values.get(name) for name in measured} == measured
    provider.shutdown()

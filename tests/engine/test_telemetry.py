"""What OpenTelemetry is told of a drive: spans with their parents and links, counts, durations; and when it is not."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

import stepwell
from stepwell.engine.events import telemetry
from stepwell.engine.events.telemetry import Observer, create_observer
from stepwell.engine.handler.threads import run_in_thread
from tests.support.observing import Watching, id_of, parent_of, use
from tests.support.spies import spy

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RUN = {"workflow.name": "orders", "workflow.run_id": "run-1"}


def a_drive(*, began: str | None = None, resumed: bool = False) -> Observer:
    watched = create_observer("orders", "run-1", began, resumed)
    assert watched is not None
    return watched


class TestWhoWatches:
    def test_nobody_watches_if_the_program_has_not_loaded_opentelemetry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "opentelemetry.trace")
        assert create_observer("orders", "run-1", None, resumed=False) is None
        assert "opentelemetry.trace" not in sys.modules

    def test_nobody_watches_if_opentelemetry_was_ruled_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
        assert create_observer("orders", "run-1", None, resumed=False) is None

    def test_nobody_watches_while_another_thread_is_still_loading_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "opentelemetry.trace", type(sys)("opentelemetry.trace"))
        assert create_observer("orders", "run-1", None, resumed=False) is None

    def test_without_the_metrics_module_there_are_spans_only(
        self, watching: Watching, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(sys.modules, "opentelemetry.metrics")
        drive = a_drive()
        with drive.superstep(1, 1).handler("pack", "str"):
            pass
        drive.record_commit(0.5)
        drive.end("IDLE")
        assert [span.name for span in watching.spans()] == [
            "executor.process pack",
            "workflow.superstep",
            "workflow.run",
        ]
        assert watching.metrics() == {}

    def test_a_drive_that_emits_no_spans_works_within_the_current_one(self, watching: Watching) -> None:
        with trace.get_tracer("program").start_as_current_span("its own") as around:
            drive = create_observer("orders", "run-1", None, resumed=False, emits_spans=False)
            assert drive is not None
            with drive.superstep(1, 1).handler("pack", "str"), trace.get_tracer("program").start_as_current_span("in"):
                pass
            drive.end("IDLE")
        assert [span.name for span in watching.spans()] == ["in", "its own"]
        assert parent_of(watching.span("in")) == around.get_span_context().span_id
        assert drive.traceparent is not None
        assert f"{around.get_span_context().span_id:016x}" in drive.traceparent
        assert watching.counted("stepwell.runs")
        assert watching.timed("stepwell.handler.duration")

    def test_an_api_that_nobody_set_up_watches_in_vain(self) -> None:
        drive = a_drive(began=TRACEPARENT, resumed=True)
        step = drive.superstep(1, 1)
        with step.handler("pack", "str"):
            assert not trace.get_current_span().is_recording()
        with pytest.raises(ValueError, match="no"), step.handler("pack", "str"):
            raise ValueError("no")
        drive.record_commit(0.1)
        drive.end("FAILED", ValueError("no"))
        assert drive.traceparent is None


class TestTheSpans:
    def test_handlers_are_inside_supersteps_and_those_inside_the_run(self, watching: Watching) -> None:
        drive = a_drive()
        for iteration in (1, 2):
            step = drive.superstep(iteration, 1)
            with step.handler(f"executor{iteration}", "str"):
                pass
            step.end()
        drive.end("IDLE")
        run = watching.span("workflow.run")
        first, second = [one for one in watching.spans() if one.name == "workflow.superstep"]
        assert parent_of(run) is None
        assert parent_of(first) == parent_of(second) == id_of(run)
        assert parent_of(watching.span("executor.process executor1")) == id_of(first)
        assert parent_of(watching.span("executor.process executor2")) == id_of(second)
        assert len({one.context.trace_id for one in watching.spans()}) == 1

    def test_a_run_is_inside_what_is_current_where_its_drive_begins(self, watching: Watching) -> None:
        with watching.tracers.get_tracer("app").start_as_current_span("request"):
            drive = a_drive()
        drive.end("IDLE")
        assert parent_of(watching.span("workflow.run")) == id_of(watching.span("request"))

    def test_spans_say_which_run_and_which_call_and_nothing_else(self, watching: Watching) -> None:
        drive = a_drive()
        step = drive.superstep(4, 2)
        with step.handler("pack", "Order", 3):
            pass
        step.end()
        drive.end(stepwell.WorkflowRunState.IDLE)
        assert {one.name: dict(one.attributes or {}) for one in watching.spans()} == {
            "workflow.run": {**RUN, "workflow.resumed": False, "workflow.status": "IDLE"},
            "workflow.superstep": {**RUN, "superstep.iteration": 4, "superstep.deliveries": 2},
            "executor.process pack": {
                **RUN,
                "executor.id": "pack",
                "message.type": "Order",
                "executor.attempt": 3,
                "executor.outcome": "ok",
            },
        }
        for span in watching.spans():
            assert span.status.status_code is StatusCode.UNSET
            assert span.kind is SpanKind.INTERNAL
            assert (span.events, span.links) == ((), ())
            assert span.instrumentation_scope is not None
            assert (span.instrumentation_scope.name, span.instrumentation_scope.version) == (
                "stepwell",
                stepwell.__version__,
            )

    def test_only_the_span_of_a_handler_is_ever_current(self, watching: Watching) -> None:
        outside = trace.get_current_span()
        drive = a_drive()
        assert trace.get_current_span() is outside
        step = drive.superstep(1, 1)
        assert trace.get_current_span() is outside
        with step.handler("pack", "str"):
            assert trace.get_current_span() is not outside
        assert trace.get_current_span() is outside

    async def test_a_drive_may_be_resumed_in_another_context_each_time(
        self, watching: Watching, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def events() -> AsyncIterator[str]:
            drive = a_drive()
            yield "started"
            step = drive.superstep(1, 1)
            yield "superstep_started"
            with step.handler("pack", "str"):
                await asyncio.sleep(0)
            yield "executor_completed"
            step.end()
            drive.end("IDLE")

        told = events()
        for _ in range(4):
            await asyncio.create_task(anext(told, None), context=contextvars.copy_context())
        assert len(watching.spans()) == 3
        assert parent_of(watching.span("workflow.superstep")) == id_of(watching.span("workflow.run"))
        assert caplog.records == []

    def test_a_superstep_that_is_left_open_ends_with_its_drive(self, watching: Watching) -> None:
        drive = a_drive()
        drive.superstep(1, 1).end()
        drive.superstep(2, 1)
        drive.end("IN_PROGRESS")
        assert [one.name for one in watching.spans()] == ["workflow.superstep", "workflow.superstep", "workflow.run"]

    def test_a_superstep_ends_once(self, watching: Watching, caplog: pytest.LogCaptureFixture) -> None:
        drive = a_drive()
        step = drive.superstep(1, 1)
        step.end()
        step.end(ValueError("too late"))
        drive.end("IDLE")
        assert watching.span("workflow.superstep").status.status_code is StatusCode.UNSET
        assert watching.counted("stepwell.supersteps") == [({"workflow.name": "orders"}, 1)]
        assert caplog.records == []

    def test_a_run_that_is_not_sampled_leaves_no_part_of_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = Watching(sampler=ALWAYS_OFF)
        use(told, monkeypatch)
        drive = a_drive()
        with drive.superstep(1, 1).handler("pack", "str"):
            inside = trace.get_current_span().get_span_context()
        drive.end("IDLE")
        assert told.spans() == []
        assert drive.traceparent is not None
        assert drive.traceparent.startswith(f"00-{inside.trace_id:032x}-")
        assert not inside.trace_flags.sampled
        assert told.counted("stepwell.supersteps") == [({"workflow.name": "orders"}, 1)]
        told.close()


class TestInsideAHandler:
    async def test_what_an_async_handler_begins_is_its_child(self, watching: Watching) -> None:
        async def ask_a_model() -> None:
            with trace.get_tracer("library").start_as_current_span("chat"):
                await asyncio.sleep(0)

        with a_drive().superstep(1, 1).handler("pack", "str"):
            await ask_a_model()
        assert parent_of(watching.span("chat")) == id_of(watching.span("executor.process pack"))

    async def test_what_a_plain_function_begins_in_its_thread_is_its_child(self, watching: Watching) -> None:
        def ask_a_model() -> None:
            with trace.get_tracer("library").start_as_current_span("chat"):
                pass

        with a_drive().superstep(1, 1).handler("pack", "str"):
            await run_in_thread(ask_a_model)
        assert parent_of(watching.span("chat")) == id_of(watching.span("executor.process pack"))

    async def test_handlers_side_by_side_keep_their_children_apart(self, watching: Watching) -> None:
        step = a_drive().superstep(1, 3)
        all_inside = asyncio.Barrier(3)

        async def call(id: str) -> None:
            with step.handler(id, "str"):
                await all_inside.wait()
                with trace.get_tracer("library").start_as_current_span(f"chat of {id}"):
                    await all_inside.wait()

        await asyncio.gather(*(call(id) for id in "abc"))
        for id in "abc":
            handler = watching.span(f"executor.process {id}")
            assert parent_of(watching.span(f"chat of {id}")) == id_of(handler)
        step.end()
        assert {parent_of(watching.span(f"executor.process {id}")) for id in "abc"} == {
            id_of(watching.span("workflow.superstep"))
        }

    async def test_a_handler_that_raises_fails_its_span_and_the_error_goes_on(self, watching: Watching) -> None:
        error = ValueError("no such order")
        with pytest.raises(ValueError, match="no such order") as raised, a_drive().superstep(1, 1).handler("p", "str"):
            raise error
        assert raised.value is error
        span = watching.span("executor.process p")
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError: no such order")
        assert dict(span.attributes or {})["executor.outcome"] == "failed"
        [event] = span.events
        assert event.name == "exception"
        assert dict(event.attributes or {})["exception.type"] == "ValueError"

    async def test_an_error_that_cannot_say_what_it_is_is_still_that_error(self, watching: Watching) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        with pytest.raises(Mute), a_drive().superstep(1, 1).handler("pack", "str"):
            raise Mute
        span = watching.span("executor.process pack")
        assert span.status.status_code is StatusCode.ERROR
        assert "Mute" in (span.status.description or "")

    async def test_a_handler_that_is_cancelled_has_not_failed(self, watching: Watching) -> None:
        step = a_drive().superstep(1, 1)
        inside = asyncio.Event()

        async def call() -> None:
            with step.handler("pack", "str"):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(call())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        span = watching.span("executor.process pack")
        assert span.status.status_code is StatusCode.UNSET
        assert span.events == ()
        assert dict(span.attributes or {})["executor.outcome"] == "cancelled"

    async def test_a_cancellation_of_a_handlers_own_making_is_a_failure(self, watching: Watching) -> None:
        with pytest.raises(asyncio.CancelledError), a_drive().superstep(1, 1).handler("pack", "str"):
            raise asyncio.CancelledError
        assert watching.span("executor.process pack").status.status_code is StatusCode.ERROR

    @pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_the_end_of_the_whole_process_is_no_failure_of_a_handler(
        self, watching: Watching, stop: type[BaseException]
    ) -> None:
        with pytest.raises(stop), a_drive().superstep(1, 1).handler("pack", "str"):
            raise stop
        assert watching.span("executor.process pack").status.status_code is StatusCode.UNSET


class TestAcrossAResume:
    def test_a_resumed_drive_is_linked_to_the_one_that_began_the_run(self, watching: Watching) -> None:
        first = a_drive()
        began = first.traceparent
        first.end("FAILED")
        a_drive(began=began, resumed=True).end("IDLE")
        beginning, resumed = watching.spans()
        [link] = resumed.links
        assert (link.context.trace_id, link.context.span_id) == (beginning.context.trace_id, id_of(beginning))
        assert link.context.trace_flags == beginning.context.trace_flags
        assert link.context.is_remote
        assert resumed.context.trace_id != beginning.context.trace_id
        assert dict(resumed.attributes or {})["workflow.resumed"] is True

    def test_the_text_of_a_drive_is_a_w3c_traceparent(self, watching: Watching) -> None:
        drive = a_drive()
        drive.end("IDLE")
        span = watching.span("workflow.run").context
        assert drive.traceparent == f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
        assert len(drive.traceparent) == len(TRACEPARENT)

    @pytest.mark.parametrize(
        "damaged",
        [
            None,
            "",
            "nonsense",
            TRACEPARENT[:-1],
            TRACEPARENT + "\n",
            TRACEPARENT.upper(),
            TRACEPARENT.replace("00-", "ff-", 1),
            f"00-{'0' * 32}-b7ad6b7169203331-01",
            f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        ],
    )
    def test_a_damaged_text_is_ignored(self, watching: Watching, damaged: str | None) -> None:
        a_drive(began=damaged, resumed=True).end("IDLE")
        assert watching.span("workflow.run").links == ()


class TestHowItEnded:
    def test_an_error_fails_the_spans_of_the_superstep_and_the_run(self, watching: Watching) -> None:
        error = stepwell.StateConflict("two wrote 'total'", run_id="run-1")
        drive = a_drive()
        drive.superstep(1, 2).end(error)
        drive.end("FAILED", error)
        for name in ("workflow.superstep", "workflow.run"):
            status = watching.span(name).status
            assert status.status_code is StatusCode.ERROR
            assert status.description == "StateConflict: two wrote 'total'"
        assert dict(watching.span("workflow.run").attributes or {})["workflow.status"] == "FAILED"

    async def test_leaving_a_run_is_no_error(self, watching: Watching) -> None:
        drive = a_drive()
        drive.superstep(1, 1)
        drive.end("IN_PROGRESS", GeneratorExit())
        assert {one.status.status_code for one in watching.spans()} == {StatusCode.UNSET}


def drive_once() -> None:
    """Two supersteps, three calls of which one fails and one is its retry, and two commits."""
    drive = a_drive()
    step = drive.superstep(1, 2)
    with step.handler("pack", "str"):
        pass
    with pytest.raises(ValueError, match="no"), step.handler("send", "str"):
        raise ValueError("no")
    with step.handler("send", "str", 2):
        pass
    drive.record_commit(0.25)
    step.end()
    drive.superstep(2, 0).end()
    drive.record_commit(0.75)
    drive.end("IDLE")


class TestTheMeasures:
    def test_counts_name_the_workflow_and_the_executor_and_never_the_run(self, watching: Watching) -> None:
        drive_once()
        here = {"workflow.name": "orders"}
        ended = {**here, "workflow.resumed": False, "workflow.status": "IDLE"}
        assert watching.counted("stepwell.runs") == [(ended, 1)]
        assert watching.counted("stepwell.supersteps") == [(here, 2)]
        assert watching.counted("stepwell.handler_calls") == [
            ({**here, "executor.id": "pack", "outcome": "ok"}, 1),
            ({**here, "executor.id": "send", "outcome": "failed"}, 1),
            ({**here, "executor.id": "send", "outcome": "ok"}, 1),
        ]
        assert watching.counted("stepwell.retries") == [({**here, "executor.id": "send"}, 1)]

    def test_durations_are_in_seconds(self, watching: Watching) -> None:
        drive_once()
        here = {"workflow.name": "orders"}
        assert watching.timed("stepwell.run.duration") == [
            ({**here, "workflow.resumed": False, "workflow.status": "IDLE"}, 1)
        ]
        assert watching.timed("stepwell.superstep.duration") == [(here, 2)]
        assert watching.timed("stepwell.handler.duration") == [
            ({**here, "executor.id": "pack"}, 1),
            ({**here, "executor.id": "send"}, 2),
        ]
        commits = watching.metrics()["stepwell.commit.duration"]
        assert commits.unit == "s"
        [point] = commits.data.data_points
        assert (point.count, point.sum, point.min, point.max) == (2, 1.0, 0.25, 0.75)

    def test_durations_from_a_millisecond_to_an_hour_can_be_told_apart(self, watching: Watching) -> None:
        drive_once()
        [point] = watching.metrics()["stepwell.commit.duration"].data.data_points
        assert (point.explicit_bounds[0], point.explicit_bounds[-1]) == (0.001, 3600)

    def test_what_was_measured_points_to_the_span_it_was_measured_in(self, watching: Watching) -> None:
        with watching.tracers.get_tracer("app").start_as_current_span("request"):
            drive_once()
        measured = watching.metrics()  # once: an example is shown once
        for metric, span in (
            ("stepwell.runs", "workflow.run"),
            ("stepwell.run.duration", "workflow.run"),
            ("stepwell.handler.duration", "executor.process pack"),
        ):
            first = measured[metric].data.data_points[0]
            assert [one.span_id for one in first.exemplars] == [id_of(watching.span(span))]

    def test_a_call_that_was_cancelled_is_counted_as_that(self, watching: Watching) -> None:
        with pytest.raises(KeyboardInterrupt), a_drive().superstep(1, 1).handler("pack", "str"):
            raise KeyboardInterrupt
        [(attributes, count)] = watching.counted("stepwell.handler_calls")
        assert (attributes["outcome"], count) == ("cancelled", 1)

    def test_instruments_are_made_once_for_each_meter_provider(
        self, watching: Watching, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        made: list[tuple[Any, ...]] = []
        create = watching.meters.get_meter
        monkeypatch.setattr(watching.meters, "get_meter", spy(create, made, lambda *scope: scope))
        drive_once()
        drive_once()
        assert made == [("stepwell", stepwell.__version__)]
        assert [count for _, count in watching.counted("stepwell.runs")] == [2]
        other = Watching()
        use(other, monkeypatch)
        drive_once()
        assert [count for _, count in other.counted("stepwell.runs")] == [1]
        other.close()
        assert caplog.records == []

    def test_every_instrument_has_something_to_show(self, watching: Watching) -> None:
        drive_once()
        assert set(watching.metrics()) == {*telemetry.COUNTERS, *telemetry.DURATIONS}

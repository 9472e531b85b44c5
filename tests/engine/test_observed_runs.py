"""What OpenTelemetry and the log are told of whole runs."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from stepwell import Executor, RetryPolicy, Workflow, WorkflowBuilder, WorkflowContext, WorkflowExecutor, handler
from tests.support.observing import Watching, id_of, parent_of


class Flaky(Executor):
    """Fails as often as it is told to, then passes on what it got."""

    def __init__(self, id: str, failures: list[Exception], **options: Any) -> None:
        super().__init__(id, **options)
        self.failures = failures

    def clone(self) -> Flaky:
        return Flaky(self.id, self.failures, retry=self._limits_for(self._handler_table.specs[0]).retry)

    @handler
    async def take(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        with trace.get_tracer("of the user").start_as_current_span("inside"):
            if self.failures:
                raise self.failures.pop()
        await ctx.yield_output(text)


def build(storage: Any, *failures: Exception, **options: Any) -> Workflow:
    flaky = Flaky("flaky", list(failures), **options)
    return WorkflowBuilder(name="orders", start_executor=flaky, checkpoint_storage=storage).build()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_its_supersteps_and_its_handlers_are_spans_inside_each_other(
    storage: Any, watching: Watching, stream: bool
) -> None:
    run: Any = build(storage).run("a", run_id="r", stream=stream)
    await run
    (run_span, step, call, inside) = (
        watching.span(name) for name in ("workflow.run", "workflow.superstep", "executor.process flaky", "inside")
    )
    assert (parent_of(inside), parent_of(call), parent_of(step)) == (id_of(call), id_of(step), id_of(run_span))
    assert run_span.attributes is not None
    assert run_span.attributes["workflow.status"] == "IDLE"
    assert run_span.attributes["workflow.run_id"] == "r"
    assert all(span.status.status_code is StatusCode.UNSET for span in (run_span, step, call))
    assert watching.counted("stepwell.supersteps") == [({"workflow.name": "orders"}, 1)]
    assert watching.timed("stepwell.commit.duration") == [({"workflow.name": "orders"}, 1)]


async def test_a_resumed_run_is_linked_to_where_it_began(storage: Any, watching: Watching) -> None:
    with pytest.raises(Exception, match="not today"):
        await build(storage, ValueError("not today")).run("a", run_id="r")
    await build(storage).run(run_id="r")
    first, second = [span for span in watching.spans() if span.name == "workflow.run"]
    assert [link.context.span_id for link in second.links] == [id_of(first)]
    assert first.status.status_code is StatusCode.ERROR
    assert first.attributes is not None
    assert first.attributes["workflow.status"] == "FAILED"
    assert second.attributes is not None
    assert second.attributes["workflow.resumed"] is True


async def test_each_attempt_is_a_span_and_each_retry_is_counted_and_logged(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RetryPolicy(initial_interval=0)
    with caplog.at_level(logging.INFO, logger="stepwell"):
        await build(None, ValueError("a"), ValueError("b"), retry=policy).run("x", run_id="r")
    calls = [span for span in watching.spans() if span.name == "executor.process flaky"]
    assert [span.attributes and span.attributes["executor.attempt"] for span in calls] == [1, 2, 3]
    assert watching.counted("stepwell.retries") == [({"workflow.name": "orders", "executor.id": "flaky"}, 2)]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["attempt 1 at 'flaky' in run 'r' failed" in warnings[0], len(warnings)] == [True, 2]
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert told == ["run 'r' of 'orders' starts", "run 'r' of 'orders' is completed"]


async def test_the_run_of_a_sub_workflow_is_a_span_inside_the_handler_that_calls_it(watching: Watching) -> None:
    inner = WorkflowExecutor(build(None), "sub", allow_direct_output=True)
    await WorkflowBuilder(name="outer", start_executor=inner).build().run("a")
    outer, nested = sorted(
        (span for span in watching.spans() if span.name == "workflow.run"), key=lambda span: span.start_time or 0
    )
    assert parent_of(nested) == id_of(watching.span("executor.process sub"))
    assert nested.context.trace_id == outer.context.trace_id


async def test_no_message_and_no_private_value_is_in_a_span(watching: Watching) -> None:
    await build(None).run("a secret message", private={"token": "a secret token"})
    for span in watching.spans():
        assert "secret" not in span.to_json()

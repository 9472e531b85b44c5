"""What OpenTelemetry is told of a drive: spans, counts and durations, if the program has loaded it.

It is never imported here. Without it `observer` says None after one look, and there is nothing to call.

A drive lives in an async generator, which may be resumed in another context each time, so the spans of runs and
supersteps are never made current: what is attached in one context cannot be detached in another. Their children are
told of them instead. Only the span of a handler is current, and only around the call itself.

Spans hold names, ids, types and the errors that were raised; never messages, state or private values.
"""

from __future__ import annotations

import asyncio
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

from stepwell.engine.superstep_log import Parked

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
    from opentelemetry.trace import Link, Span, Tracer

Attributes = Mapping[str, str | bool | int]

SCOPE = "stepwell"
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
COUNTERS = {
    "stepwell.runs": "Drives of runs that ended, by the status they left the run in",
    "stepwell.supersteps": "Supersteps that ended",
    "stepwell.handler_calls": "Handler calls that ended, by outcome: ok, failed or cancelled",
    "stepwell.retries": "Handler calls that were made again because they had failed",
}
DURATIONS = {
    "stepwell.run.duration": "How long a drive moved its run on",
    "stepwell.superstep.duration": "How long a superstep took, commit included",
    "stepwell.handler.duration": "How long a handler call took",
    "stepwell.commit.duration": "How long a commit took to store",
}
# From a commit to a run of hours; what OpenTelemetry takes by default is made for milliseconds.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)


def observer(workflow: str, run_id: str, began: str | None, resumed: bool) -> Observer | None:
    """Who watches a drive of this run; None if nobody can. `began` is the `traceparent` of the drive that began it.

    The span of the drive is a child of the one that is current here.
    """
    tracing = _find_module("opentelemetry.trace", "use_span")
    if tracing is None:
        return None
    metering = _find_module("opentelemetry.metrics", "get_meter_provider")
    measures = _Measures(None) if metering is None else _measures_of(metering.get_meter_provider())
    return Observer(_Spans(tracing), measures, workflow, run_id, began, resumed)


class Observer:
    """Watches one drive, and the supersteps in it one after the other."""

    def __init__(
        self, spans: _Spans, measures: _Measures, workflow: str, run_id: str, began: str | None, resumed: bool
    ) -> None:
        self._spans, self._measures = spans, measures
        self._workflow: Attributes = {"workflow.name": workflow}
        self._run: Attributes = {**self._workflow, "workflow.run_id": run_id}
        self._resumed: Attributes = {"workflow.resumed": resumed}
        self._span = spans.start("workflow.run", {**self._run, **self._resumed}, links=spans.links(began))
        self._step: StepObserver | None = None
        self._started = perf_counter()

    @property
    def traceparent(self) -> str | None:
        """The span of this drive as W3C text, to be stored when it begins a run; None if nobody traces."""
        span = self._span.get_span_context()
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else None

    def superstep(self, iteration: int, deliveries: int) -> StepObserver:
        """A superstep begins that is to make so many handler calls."""
        span = self._spans.start(
            "workflow.superstep",
            {**self._run, "superstep.iteration": iteration, "superstep.deliveries": deliveries},
            parent=self._span,
        )
        self._step = StepObserver(self._spans, self._measures, self._workflow, self._run, span)
        return self._step

    def record_commit(self, seconds: float) -> None:
        """A commit was stored, and it took so long."""
        self._measures.record("stepwell.commit.duration", seconds, self._workflow, self._spans.within(self._span))

    def end(self, status: str, error: BaseException | None = None) -> None:
        """The drive is over, and so is a superstep that it left open. Being stopped is no error."""
        if self._step is not None:
            self._step.end(error)
        seconds, within = perf_counter() - self._started, self._spans.within(self._span)
        self._span.set_attribute("workflow.status", status)
        self._spans.end(self._span, error)
        about = {**self._workflow, **self._resumed, "workflow.status": status}
        self._measures.count("stepwell.runs", about, within)
        self._measures.record("stepwell.run.duration", seconds, about, within)


class StepObserver:
    """Watches one superstep, and the handler calls in it side by side."""

    def __init__(self, spans: _Spans, measures: _Measures, workflow: Attributes, run: Attributes, span: Span) -> None:
        self._spans, self._measures, self._workflow, self._run, self._span = spans, measures, workflow, run, span
        self._started = perf_counter()
        self._ended = False

    @contextmanager
    def handler(self, executor_id: str, message_type: str, attempt: int = 1) -> Iterator[None]:
        """Around one handler call, in the task that makes it: spans begun inside are its children.

        An error passes through and is recorded; being stopped from outside is no error. What limits the time of a
        call belongs inside, else running out of it looks like being stopped. An attempt after the first is a retry.
        """
        about: Attributes = {"executor.id": executor_id, "message.type": message_type, "executor.attempt": attempt}
        span = self._spans.start(f"executor.process {executor_id}", {**self._run, **about}, parent=self._span)
        if attempt > 1:
            self._measures.count("stepwell.retries", self._of(executor_id), self._spans.within(span))
        started = perf_counter()
        try:
            with self._spans.current(span):
                yield
        except BaseException as error:
            self._record_call(executor_id, span, perf_counter() - started, error)
            raise
        else:
            self._record_call(executor_id, span, perf_counter() - started)

    def end(self, error: BaseException | None = None) -> None:
        """The superstep is committed, has failed or was left; only the first time counts."""
        if self._ended:
            return
        self._ended = True
        seconds, within = perf_counter() - self._started, self._spans.within(self._span)
        self._spans.end(self._span, error)
        self._measures.count("stepwell.supersteps", self._workflow, within)
        self._measures.record("stepwell.superstep.duration", seconds, self._workflow, within)

    def _record_call(self, executor_id: str, span: Span, seconds: float, error: BaseException | None = None) -> None:
        outcome = "ok" if error is None else "cancelled" if _is_stop(error) else "failed"
        within = self._spans.within(span)
        span.set_attribute("executor.outcome", outcome)
        self._spans.end(span, error)
        about = self._of(executor_id)
        self._measures.count("stepwell.handler_calls", {**about, "outcome": outcome}, within)
        self._measures.record("stepwell.handler.duration", seconds, about, within)

    def _of(self, executor_id: str) -> Attributes:
        return {**self._workflow, "executor.id": executor_id}


class _Spans:
    """The tracing half of OpenTelemetry, as the program has loaded it."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._tracer: Tracer = api.get_tracer(SCOPE, _version())

    def start(
        self, name: str, attributes: Attributes, *, parent: Span | None = None, links: Sequence[Link] = ()
    ) -> Span:
        """A span inside its parent, or inside what is current."""
        context = None if parent is None else self.within(parent)
        return self._tracer.start_span(name, context=context, attributes=attributes, links=links)

    def within(self, span: Span) -> Context:
        """The context of what belongs to a span, without making it current."""
        context: Context = self._api.set_span_in_context(span)
        return context

    def current(self, span: Span) -> AbstractContextManager[Span]:
        used: AbstractContextManager[Span] = self._api.use_span(
            span, record_exception=False, set_status_on_exception=False
        )
        return used

    def end(self, span: Span, error: BaseException | None) -> None:
        if error is not None and not _is_stop(error):
            with suppress(Exception):  # of an error whose __str__ is broken
                span.record_exception(error)
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, _words(error)))
        span.end()

    def links(self, traceparent: str | None) -> Sequence[Link]:
        """A link to that span; none if the text is missing or damaged."""
        match = TRACEPARENT.fullmatch(traceparent or "")
        if match is None:
            return ()
        trace_id, span_id, flags = (int(part, 16) for part in match.groups())
        remote = self._api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=self._api.TraceFlags(flags))
        return (self._api.Link(remote),) if remote.is_valid else ()


class _Measures:
    """Counters and durations; without a meter, nothing is measured."""

    def __init__(self, meter: Meter | None) -> None:
        self._counters: dict[str, Counter] = {}
        self._durations: dict[str, Histogram] = {}
        if meter is not None:
            for name, meaning in COUNTERS.items():
                self._counters[name] = meter.create_counter(name, description=meaning)
            for name, meaning in DURATIONS.items():
                self._durations[name] = meter.create_histogram(
                    name, unit="s", description=meaning, explicit_bucket_boundaries_advisory=SECONDS
                )

    def count(self, name: str, attributes: Attributes, within: Context) -> None:
        if self._counters:
            self._counters[name].add(1, attributes, within)

    def record(self, name: str, seconds: float, attributes: Attributes, within: Context) -> None:
        if self._durations:
            self._durations[name].record(seconds, attributes, within)


@lru_cache(maxsize=1)
def _measures_of(provider: MeterProvider) -> _Measures:
    return _Measures(provider.get_meter(SCOPE, _version()))


def _find_module(module: str, last: str) -> Any:
    """The module if the program has loaded it; not while another thread has yet to reach the last name used of it."""
    loaded = sys.modules.get(module)
    return loaded if hasattr(loaded, last) else None


def _version() -> str:
    version: str = sys.modules[SCOPE].__version__  # an import would look up from here to every floor above
    return version


def _is_stop(error: BaseException) -> bool:
    """Whether work was stopped from outside. A cancellation that a handler made itself is a failure of its own."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | Parked)


def _words(error: BaseException) -> str:
    """What an exception says, also if its __str__ is broken."""
    return f"{type(error).__name__}: {traceback.TracebackException(type(error), error, None)}"

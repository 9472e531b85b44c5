"""Reports a drive to OpenTelemetry (spans, counts, durations) if the program has loaded it.

It is never imported here. Without it, `create_observer` returns None after one look, and nothing is called.

A drive lives in an async generator, which may be resumed in another context each time, so the spans of runs and
supersteps are never made current: what is attached in one context cannot be detached in another. Their children
get them as explicit parents instead. Only the span of a handler is current, and only around the call itself.

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

from stepwell.engine.durability.superstep_log import Parked

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
# From a commit to a run of hours; the default buckets of OpenTelemetry are made for milliseconds.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)


def create_observer(
    workflow: str, run_id: str, first_trace: str | None, resumed: bool, emits_spans: bool = True
) -> Observer | None:
    """Return an observer for a drive; None without OpenTelemetry.

    `first_trace` is the `traceparent` of the first drive of the run.
    The span of the drive is a child of the current span. A drive that emits no spans works within the current one.
    """
    tracing = _find_module("opentelemetry.trace", "use_span")
    if tracing is None:
        return None
    metering = _find_module("opentelemetry.metrics", "get_meter_provider")
    measures = _Measures(None) if metering is None else _measures_of(metering.get_meter_provider())
    return Observer(_Spans(tracing, emits_spans), measures, workflow, run_id, first_trace, resumed)


class Observer:
    """Observes one drive, and its supersteps one after the other."""

    def __init__(
        self, spans: _Spans, measures: _Measures, workflow: str, run_id: str, first_trace: str | None, resumed: bool
    ) -> None:
        self._spans, self._measures = spans, measures
        self._workflow: Attributes = {"workflow.name": workflow}
        self._run: Attributes = {**self._workflow, "workflow.run_id": run_id}
        self._resumed: Attributes = {"workflow.resumed": resumed}
        self._span = spans.start("workflow.run", {**self._run, **self._resumed}, links=spans.links(first_trace))
        self._superstep: SuperstepObserver | None = None
        self._started = perf_counter()

    @property
    def traceparent(self) -> str | None:
        """The span of this drive in W3C format, to be stored with a new run; None if nothing is traced."""
        span = self._span.get_span_context()
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else None

    def superstep(self, iteration: int, deliveries: int) -> SuperstepObserver:
        """Start observing a superstep with that many handler calls."""
        span = self._spans.start(
            "workflow.superstep",
            {**self._run, "superstep.iteration": iteration, "superstep.deliveries": deliveries},
            parent=self._span,
        )
        self._superstep = SuperstepObserver(self._spans, self._measures, self._workflow, self._run, span)
        return self._superstep

    def record_commit(self, seconds: float) -> None:
        """Record how long a commit took to store."""
        self._measures.record("stepwell.commit.duration", seconds, self._workflow, self._spans.within(self._span))

    def end(self, status: str, error: BaseException | None = None) -> None:
        """End the drive, and a superstep that it left open. Being stopped from outside is not an error."""
        if self._superstep is not None:
            self._superstep.end(error)
        seconds, within = perf_counter() - self._started, self._spans.within(self._span)
        self._span.set_attribute("workflow.status", status)
        self._spans.end(self._span, error)
        about = {**self._workflow, **self._resumed, "workflow.status": status}
        self._measures.count("stepwell.runs", about, within)
        self._measures.record("stepwell.run.duration", seconds, about, within)


class SuperstepObserver:
    """Observes one superstep, and its handler calls concurrently."""

    def __init__(self, spans: _Spans, measures: _Measures, workflow: Attributes, run: Attributes, span: Span) -> None:
        self._spans, self._measures, self._workflow, self._run, self._span = spans, measures, workflow, run, span
        self._started = perf_counter()
        self._ended = False

    @contextmanager
    def handler(self, executor_id: str, message_type: str, attempt: int = 1) -> Iterator[None]:
        """Observe one handler call, in the task that makes it: spans started inside are its children.

        An error passes through and is recorded; being stopped from outside is not an error. A time limit belongs
        inside, otherwise a timeout looks like being stopped. An attempt after the first counts as a retry.
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
        """End the superstep, whether committed, failed or left; only the first call counts."""
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
    """The tracing API of OpenTelemetry, as the program has loaded it."""

    def __init__(self, api: Any, emits: bool) -> None:
        self._api = api
        # What the other tracer returns as a new span stands for the one around it.
        self._tracer: Tracer = api.get_tracer(SCOPE, _version()) if emits else api.NoOpTracer()

    def start(
        self, name: str, attributes: Attributes, *, parent: Span | None = None, links: Sequence[Link] = ()
    ) -> Span:
        """Start a span inside its parent, or inside the current one."""
        context = None if parent is None else self.within(parent)
        return self._tracer.start_span(name, context=context, attributes=attributes, links=links)

    def within(self, span: Span) -> Context:
        """Return a context inside a span, without making it current."""
        context: Context = self._api.set_span_in_context(span)
        return context

    def current(self, span: Span) -> AbstractContextManager[Span]:
        used: AbstractContextManager[Span] = self._api.use_span(
            span, record_exception=False, set_status_on_exception=False
        )
        return used

    def end(self, span: Span, error: BaseException | None) -> None:
        if error is not None and not _is_stop(error):
            # The `__str__` of a user's error may raise.
            with suppress(Exception):
                span.record_exception(error)
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, _describe(error)))
        span.end()

    def links(self, traceparent: str | None) -> Sequence[Link]:
        """Return a link to that span; none if the string is missing or malformed."""
        match = TRACEPARENT.fullmatch(traceparent or "")
        if match is None:
            return ()
        trace_id, span_id, flags = (int(part, 16) for part in match.groups())
        remote = self._api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=self._api.TraceFlags(flags))
        return (self._api.Link(remote),) if remote.is_valid else ()


class _Measures:
    """Counters and durations; without a meter, nothing is recorded."""

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


def find_meter() -> Meter | None:
    """Return the meter of this library; None if the program has not loaded OpenTelemetry."""
    metering = _find_module("opentelemetry.metrics", "get_meter_provider")
    return None if metering is None else metering.get_meter_provider().get_meter(SCOPE, _version())


@lru_cache(maxsize=1)
def _measures_of(provider: MeterProvider) -> _Measures:
    return _Measures(provider.get_meter(SCOPE, _version()))


def _find_module(module: str, last: str) -> Any:
    """Return a module if the program has loaded it completely: another thread may be in the middle of importing it."""
    loaded = sys.modules.get(module)
    return loaded if hasattr(loaded, last) else None


def _version() -> str:
    # Not imported: `stepwell` is above this package and imports it.
    version: str = sys.modules[SCOPE].__version__
    return version


def _is_stop(error: BaseException) -> bool:
    """Return whether work was stopped from outside. A cancellation that a handler raised itself is a failure."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | Parked)


def _describe(error: BaseException) -> str:
    """Return type and message of an exception, even if its `__str__` raises."""
    return f"{type(error).__name__}: {traceback.TracebackException(type(error), error, None)}"

"""Workflows, workers, metrics, and who the caller is."""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response

import stepwell
from stepwell.graph.type_matching import describe
from stepwell.server.api.documents import (
    Caller,
    MetricItem,
    MetricList,
    WorkerList,
    WorkflowItem,
    WorkflowList,
    worker_item,
)
from stepwell.server.api.operation import ApiCall, Nothing, operation
from stepwell.server.identity import Role
from stepwell.server.run_start import input_schema, input_types
from stepwell.worker.metrics import to_prometheus
from stepwell.worker.slices import Served, workflow_of


@operation("GET", "/caller", Role.SEE)
async def get_caller(call: ApiCall[Nothing, None]) -> Caller:
    """Say who the server takes the caller for."""
    return Caller(call.identity.name, call.identity.role.value, stepwell.__version__)


@operation("GET", "/workflows", Role.SEE)
async def list_workflows(call: ApiCall[Nothing, None]) -> WorkflowList:
    """List the workflows that can be started here."""
    return WorkflowList([_describe(name, served) for name, served in call.services.workflows.items()])


def _describe(name: str, served: Served) -> WorkflowItem:
    workflow = workflow_of(served)
    return WorkflowItem(
        name,
        workflow.version,
        input_types=[describe(accepted) for accepted in input_types(served)],
        input_schema=input_schema(served),
        graph=workflow.to_dict(),
    )


@operation("GET", "/workers", Role.SEE)
async def list_workers(call: ApiCall[Nothing, None]) -> WorkerList:
    """List the workers that drive runs of the store, and those that were seen in the last day."""
    return WorkerList([worker_item(worker) for worker in await call.services.storage.list_workers()])


@operation("GET", "/metrics", Role.SEE)
async def get_metrics(call: ApiCall[Nothing, None]) -> MetricList:
    """Count the runs of the store, its open requests, and for how long runs have been ready.

    Counts of more than 10,000 runs may be five seconds old.
    """
    return MetricList(
        [
            MetricItem(metric.name, metric.meaning, metric.kind, dict(labels), value)
            for metric in await call.services.metrics.read()
            for labels, value in metric.values.items()
        ]
    )


@operation("GET", "/metrics/prometheus", Role.SEE, media_type="text/plain")
async def get_prometheus_metrics(call: ApiCall[Nothing, None]) -> Response:
    """Return the metrics in the text format of Prometheus."""
    text = to_prometheus(await call.services.metrics.read())
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


OPERATIONS = (get_caller, list_workflows, list_workers, get_metrics, get_prometheus_metrics)

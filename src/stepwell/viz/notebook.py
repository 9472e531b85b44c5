"""What a notebook shows of a workflow and of a result."""

from __future__ import annotations

from typing import Any, cast

from stepwell.model.event import WorkflowRunState
from stepwell.model.status_words import status_word
from stepwell.viz.markup import escape, shorten
from stepwell.viz.progress import Progress
from stepwell.viz.workflow_diagram import Graph

_LONGEST = 2_000  # characters of one output


class NotebookDrawing:
    """Something that a notebook shows as a drawing: a workflow."""

    def _repr_svg_(self) -> str:
        from stepwell.viz.svg import draw  # lazy: most programs draw nothing

        return draw(cast(Graph, self), title=f"Workflow {getattr(self, 'name', '')}".strip())


def result_html(
    graph: Graph | None, progress: Progress | None, *, run_id: str, state: WorkflowRunState, outputs: list[Any]
) -> str:
    """Return a result as HTML: its status, its outputs, and the graph with the progress of the run."""
    from stepwell.viz.svg import draw  # lazy: most programs draw nothing

    word = status_word(state)
    html = f"<p><b>{escape(word)}</b> · run <code>{escape(run_id)}</code></p>"
    html += "".join(f"<pre>{escape(shorten(repr(output), _LONGEST))}</pre>" for output in outputs)
    if not graph:
        return html
    return f"{html}<div>{draw(graph, progress=progress, title=f'Run {run_id}: {word}')}</div>"

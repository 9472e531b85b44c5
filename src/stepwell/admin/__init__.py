"""Tools to find, compare, fork, export and prune stored runs without the program that made them.

Each name is imported from its module on first use. Type checkers read `__init__.pyi`.
"""

from stepwell.codec import modules as _modules

# Loading everything would import the engine and the report for somebody who wants to list runs.
_HOMES = {
    "Ambiguous": "lookup",
    "Cancelled": "cancellation",
    "Change": "diffs.json_diff",
    "Checked": "deploy_check",
    "CheckedRun": "deploy_check",
    "Difference": "diffs.checkpoints",
    "EditRefused": "state_edits",
    "Examined": "doctor.examination",
    "Exported": "transfer.exporter",
    "Finding": "doctor.examination",
    "Holding": "run_search",
    "ImportRefused": "transfer.import_errors",
    "Imported": "transfer.importer",
    "Keep": "retention.policy",
    "NotForked": "diffs.checkpoints",
    "NotFound": "lookup",
    "Progress": "report.drawing",
    "PruneReport": "retention.pruner",
    "Question": "requests",
    "answer": "responses",
    "apply_patch": "diffs.json_diff",
    "cancel": "cancellation",
    "check": "deploy_check",
    "compare": "diffs.json_diff",
    "delete_runs": "retention.pruner",
    "diff": "diffs.checkpoints",
    "diff_from_parent": "diffs.checkpoints",
    "draw": "report.drawing",
    "examine": "doctor.examination",
    "export_run": "transfer.exporter",
    "export_to": "transfer.exporter",
    "find_checkpoint": "lookup",
    "find_run": "lookup",
    "fork": "forks.fork",
    "import_from": "transfer.importer",
    "import_run": "transfer.importer",
    "open_questions": "requests",
    "preview_fork": "forks.fork",
    "prune": "retention.pruner",
    "report_run": "report.page",
    "report_to": "report.page",
    "search": "run_search",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        # Kept in the module, so that the next access does not come here again.
        value = globals()[name] = getattr(_modules.load(f"{__name__}.{_HOMES[name]}"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

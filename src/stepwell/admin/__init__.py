"""Tools to find, compare, fork, export and prune stored runs without the program that made them.

Each name is imported from its module on first use. Type checkers read `__init__.pyi`.
"""

from stepwell.codec import modules as _modules

# Loading everything would import the engine and the report for somebody who wants to list runs.
_HOMES = {
    "Ambiguous": "admin.lookup",
    "Cancelled": "admin.cancellation",
    "Change": "admin.diffs.json_diff",
    "Checked": "admin.deploy_check",
    "CheckedRun": "admin.deploy_check",
    "Difference": "admin.diffs.checkpoints",
    "EditRefused": "admin.state_edits",
    "Examined": "admin.doctor.examination",
    "Exported": "admin.transfer.exporter",
    "Finding": "admin.doctor.examination",
    "Holding": "admin.run_search",
    "ImportRefused": "admin.transfer.container",
    "Imported": "admin.transfer.importer",
    "Keep": "admin.retention.policy",
    "Lineage": "admin.lineage",
    "LineageRun": "admin.lineage",
    "NotForked": "admin.diffs.checkpoints",
    "NotFound": "admin.lookup",
    "OpenRequest": "admin.requests",
    "PruneReport": "admin.retention.pruner",
    "RetryReport": "admin.retries",
    "RunOverview": "admin.overview.run_overview",
    "TimedEvent": "admin.run_events",
    "apply_patch": "admin.diffs.json_diff",
    "cancel": "admin.cancellation",
    "check": "admin.deploy_check",
    "compare": "admin.diffs.json_diff",
    "delete_runs": "admin.retention.pruner",
    "describe_run": "admin.overview.run_document",
    "diff": "admin.diffs.checkpoints",
    "diff_from_parent": "admin.diffs.checkpoints",
    "examine": "admin.doctor.examination",
    "export_run": "admin.transfer.exporter",
    "export_to": "admin.transfer.exporter",
    "find_checkpoint": "admin.lookup",
    "find_lineage": "admin.lineage",
    "find_run": "admin.lookup",
    "fork": "admin.forks",
    "import_from": "admin.transfer.importer",
    "import_run": "admin.transfer.importer",
    "load_overview": "admin.overview.run_overview",
    "open_requests": "admin.requests",
    "preview_fork": "admin.forks",
    "prune": "admin.retention.pruner",
    "read_history": "admin.run_history",
    "report_run": "admin.report.page",
    "report_to": "admin.report.page",
    "respond": "admin.requests",
    "restore": "admin.restores",
    "retry": "admin.retries",
    "search": "admin.run_search",
}

__getattr__, __dir__, __all__ = _modules.export_lazily(__name__, _HOMES)

"""The names of `stepwell.admin` as type checkers see them.

`__init__.py` loads the same names lazily.
"""

from stepwell.admin.cancellation import Cancelled, cancel
from stepwell.admin.decisions import DecisionRecord, list_decisions
from stepwell.admin.deploy_check import Checked, CheckedRun, check
from stepwell.admin.diffs.checkpoints import Difference, NotForked, diff, diff_from_parent
from stepwell.admin.diffs.json_diff import Change, apply_patch, compare
from stepwell.admin.doctor.examination import Examined, Finding, examine
from stepwell.admin.forks import fork, preview_fork
from stepwell.admin.lineage import Lineage, LineageRun, find_lineage
from stepwell.admin.lookup import Ambiguous, NotFound, find_checkpoint, find_run
from stepwell.admin.overview.run_document import describe_run
from stepwell.admin.overview.run_overview import RunOverview, load_overview
from stepwell.admin.report.page import report_run, report_to
from stepwell.admin.requests import OpenRequest, open_requests, respond
from stepwell.admin.restores import restore
from stepwell.admin.retention.policy import Keep
from stepwell.admin.retention.pruner import PruneReport, delete_runs, prune
from stepwell.admin.retries import RetryReport, retry
from stepwell.admin.run_events import TimedEvent
from stepwell.admin.run_history import read_history
from stepwell.admin.run_search import Holding, search
from stepwell.admin.state_edits import EditRefused
from stepwell.admin.transfer.container import ImportRefused
from stepwell.admin.transfer.exporter import Exported, export_run, export_to
from stepwell.admin.transfer.importer import Imported, import_from, import_run

__all__ = [
    "Ambiguous",
    "Cancelled",
    "Change",
    "Checked",
    "CheckedRun",
    "DecisionRecord",
    "Difference",
    "EditRefused",
    "Examined",
    "Exported",
    "Finding",
    "Holding",
    "ImportRefused",
    "Imported",
    "Keep",
    "Lineage",
    "LineageRun",
    "NotForked",
    "NotFound",
    "OpenRequest",
    "PruneReport",
    "RetryReport",
    "RunOverview",
    "TimedEvent",
    "apply_patch",
    "cancel",
    "check",
    "compare",
    "delete_runs",
    "describe_run",
    "diff",
    "diff_from_parent",
    "examine",
    "export_run",
    "export_to",
    "find_checkpoint",
    "find_lineage",
    "find_run",
    "fork",
    "import_from",
    "import_run",
    "list_decisions",
    "load_overview",
    "open_requests",
    "preview_fork",
    "prune",
    "read_history",
    "report_run",
    "report_to",
    "respond",
    "restore",
    "retry",
    "search",
]

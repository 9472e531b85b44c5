"""Runs seen, compared, forked and cleaned up from outside, without the program that made them."""

from .answering import answer
from .cancelling import Cancelled, cancel
from .comparing import Change, compare, patched
from .differing import Difference, diff
from .drawing import Progress, draw
from .editing import EditRefused
from .examining import Examined, Finding, examine
from .exporting import Exported, export_run, export_to
from .forking import fork
from .importing import Imported, ImportRefused, import_from, import_run
from .keeping import Keep
from .naming import Ambiguous, NotFound, find_checkpoint, find_run
from .pages import report_run, report_to
from .pruning import PruneReport, prune

__all__ = [
    "Ambiguous",
    "Cancelled",
    "Change",
    "Difference",
    "EditRefused",
    "Examined",
    "Exported",
    "Finding",
    "ImportRefused",
    "Imported",
    "Keep",
    "NotFound",
    "Progress",
    "PruneReport",
    "answer",
    "cancel",
    "compare",
    "diff",
    "draw",
    "examine",
    "export_run",
    "export_to",
    "find_checkpoint",
    "find_run",
    "fork",
    "import_from",
    "import_run",
    "patched",
    "prune",
    "report_run",
    "report_to",
]

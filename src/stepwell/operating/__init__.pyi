"""What type checkers see of `stepwell.operating`: every name and its home. `__init__.py` says it to Python."""

from .answering import answer
from .cancelling import Cancelled, cancel
from .checking import Checked, CheckedRun, check
from .comparing import Change, compare, patched
from .differing import Difference, NotForked, diff, diff_from_parent
from .drawing import Progress, draw
from .editing import EditRefused
from .examining import Examined, Finding, examine
from .exporting import Exported, export_run, export_to
from .forking import fork, preview_fork
from .import_errors import ImportRefused
from .importing import Imported, import_from, import_run
from .keeping import Keep
from .naming import Ambiguous, NotFound, find_checkpoint, find_run
from .pages import report_run, report_to
from .pruning import PruneReport, delete_runs, prune
from .questions import Question, open_questions
from .searching import Holding, search

__all__ = [
    "Ambiguous",
    "Cancelled",
    "Change",
    "Checked",
    "CheckedRun",
    "Difference",
    "EditRefused",
    "Examined",
    "Exported",
    "Finding",
    "Holding",
    "ImportRefused",
    "Imported",
    "Keep",
    "NotForked",
    "NotFound",
    "Progress",
    "PruneReport",
    "Question",
    "answer",
    "cancel",
    "check",
    "compare",
    "delete_runs",
    "diff",
    "diff_from_parent",
    "draw",
    "examine",
    "export_run",
    "export_to",
    "find_checkpoint",
    "find_run",
    "fork",
    "import_from",
    "import_run",
    "open_questions",
    "patched",
    "preview_fork",
    "prune",
    "report_run",
    "report_to",
    "search",
]

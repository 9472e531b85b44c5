"""Runs seen, compared, forked and cleaned up from outside, without the program that made them."""

from .comparing import Change, compare, patched
from .differing import Difference, diff
from .editing import EditRefused
from .forking import fork
from .keeping import Keep
from .naming import Ambiguous, NotFound, find_checkpoint, find_run
from .pruning import PruneReport, prune

__all__ = [
    "Ambiguous",
    "Change",
    "Difference",
    "EditRefused",
    "Keep",
    "NotFound",
    "PruneReport",
    "compare",
    "diff",
    "find_checkpoint",
    "find_run",
    "fork",
    "patched",
    "prune",
]

"""Runs seen, compared, forked and cleaned up from outside, without the program that made them.

Each name is at home in a module of its own, which is loaded when the name is asked for first. Type checkers read
`__init__.pyi`.
"""

from ..durable import modules as _modules

_HOMES = {
    "Ambiguous": "naming",
    "Cancelled": "cancelling",
    "Change": "comparing",
    "Checked": "checking",
    "CheckedRun": "checking",
    "Difference": "differing",
    "EditRefused": "editing",
    "Examined": "examining",
    "Exported": "exporting",
    "Finding": "examining",
    "Holding": "searching",
    "ImportRefused": "import_errors",
    "Imported": "importing",
    "Keep": "keeping",
    "NotForked": "differing",
    "NotFound": "naming",
    "Progress": "drawing",
    "PruneReport": "pruning",
    "Question": "questions",
    "answer": "answering",
    "cancel": "cancelling",
    "check": "checking",
    "compare": "comparing",
    "delete_runs": "pruning",
    "diff": "differing",
    "diff_from_parent": "differing",
    "draw": "drawing",
    "examine": "examining",
    "export_run": "exporting",
    "export_to": "exporting",
    "find_checkpoint": "naming",
    "find_run": "naming",
    "fork": "forking",
    "import_from": "importing",
    "import_run": "importing",
    "open_questions": "questions",
    "patched": "comparing",
    "preview_fork": "forking",
    "prune": "pruning",
    "report_run": "pages",
    "report_to": "pages",
    "search": "searching",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        found = globals()[name] = getattr(_modules.load(f"{__name__}.{_HOMES[name]}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

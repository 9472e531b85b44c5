"""A traceback is shown with the frames of the program, and without those that only call it."""

from __future__ import annotations

from stepwell.admin.tracebacks import shorten_traceback

OURS = '  File "/venv/lib/stepwell/engine/superstep/superstep.py", line 3, in call\n    await call()\n          ^^^^\n'
THEIRS = '  File "/home/ada/stepwell/shop.py", line 7, in ship\n    raise ValueError("no stamps")\n'
END = "ValueError: no stamps"
FIRST = "Traceback (most recent call last):\n"


def test_frames_of_this_package_are_left_out() -> None:
    lines, left_out = shorten_traceback(f"{FIRST}{OURS}{THEIRS}{END}\n", most=30)
    assert lines == [*f"{FIRST}{THEIRS}".splitlines(), END]  # even if their folder has our name
    assert left_out == 3


def test_a_cause_is_kept_and_the_end_counts_most() -> None:
    between = "\nThe above exception was the direct cause of the following exception:\n\n"
    traceback = f"{FIRST}{THEIRS}{END}\n{between}{FIRST}{OURS}{THEIRS}{END}"
    lines, _ = shorten_traceback(traceback, most=30)
    assert lines.count(END) == 2
    assert shorten_traceback(traceback, most=2) == ([THEIRS.splitlines()[1], END], len(traceback.splitlines()) - 2)


def test_if_every_frame_is_ours_all_are_shown() -> None:
    assert shorten_traceback(f"{FIRST}{OURS}{END}", most=30) == (f"{FIRST}{OURS}{END}".splitlines(), 0)
    assert shorten_traceback("", most=30) == ([], 0)

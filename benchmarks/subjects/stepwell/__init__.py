"""Stepwell, driving runs."""

import importlib.util
from collections.abc import Iterator
from functools import partial
from typing import Any

from crash import CRASHES
from job import Subject

from subjects.stepwell.functions import agent, steps
from subjects.stepwell.history import history, prepare_history
from subjects.stepwell.speed import chain, crash, fanout, many, superstep
from subjects.stepwell.state import big, growth, heavy
from subjects.stepwell.workflow import DURABLE, KEEPS


def _subjects() -> Iterator[Subject]:
    for case, run in (("chain", chain), ("fanout", fanout), ("many", many)):
        yield from (_subject(case, place, run) for place in KEEPS)
    for place in DURABLE:
        yield from (_subject(case, place, growth) for case in ("growth", "long"))
        yield from (_subject(case, place, crash) for case in CRASHES)
        yield _subject("big", place, big)
        yield _subject("history", place, history, prepare=partial(prepare_history, place=place))
    for how in ("append-and-read", "hook", "set"):
        yield from (_subject(case, "sqlite", growth, how) for case in ("growth", "long"))
    yield _subject("growth", "none", growth, "hook")
    yield from (_subject("big", place, big, how) for place in ("sqlite", "postgres") for how in ("small", "hook"))
    yield from (_subject("heavy", place, heavy) for place in ("none", "sqlite", "postgres"))
    yield _subject("heavy", "sqlite", heavy, "hook")
    yield _subject("superstep", "sqlite", superstep)
    yield from (_subject("steps", place, steps) for place in DURABLE)
    if importlib.util.find_spec("pydantic_ai") is not None:
        yield from (_subject("agent", place, agent) for place in ("sqlite", "postgres"))


def _subject(case: str, place: str, run: Any, how: str | None = None, prepare: Any = None) -> Subject:
    name = "-".join(["stepwell", *([place] if place != "none" else []), *([how] if how else [])])
    options = {} if how is None else {"how": how}
    run = partial(run, place=place, **options)
    return Subject(case, name, KEEPS[place], run, postgres=place == "postgres", prepare=prepare)


SUBJECTS = list(_subjects())

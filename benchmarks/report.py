"""Turn measurements into medians, tables and goals."""

import statistics
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cases import CASES, Case
from goals import GOALS, Figures, Goal

QUIET = 0.25
"""How many cores other programs may use while a measurement still counts as quiet."""
ENOUGH = 3
COLUMNS = 100  # of the lines of prose in a page
NOT_MEASURED = "-"
IN_BYTES = {"left", "empty", "rss", "written_each", "bytes"}
WORST = {"called_again"}  # notes of which the highest counts, not the median
TIMED = {
    "rate": "{unit}s/s",
    "ms": "ms per {unit}",
    "cpu_us": "cpu µs per {unit}",
    "written_each": "written per {unit}",
    "left": "on disk",
    "rss": "peak memory",
    "quiet": "quiet",
}
SYSTEMS = ("stepwell", "maf", "langgraph", "dbos", "raw")


def is_quiet(figures: Mapping[str, Any]) -> bool:
    return float(figures.get("others", 0.0)) <= QUIET


def summary(case: Case, repeats: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the medians of one subject in one case, per unit.

    Only the quiet repeats count, if there are enough of them.
    """
    quiet = [one for one in repeats if is_quiet(one)]
    calm = len(quiet) >= min(ENOUGH, len(repeats))
    counted = quiet if calm else repeats
    flat = [_per_unit(case, one) for one in counted]
    found = {key: (max if key in WORST else statistics.median)(one[key] for one in flat) for key in flat[0]}
    return found | {"quiet": len(quiet), "repeats": len(repeats), "calm": calm}


def _per_unit(case: Case, one: Mapping[str, Any]) -> dict[str, float]:
    found = dict(one["notes"])
    if "seconds" not in one:
        return found
    units = case.count(one["sizes"])
    found |= {"rate": units / one["seconds"], "ms": one["seconds"] / units * 1000, "cpu_us": one["cpu"] / units * 1e6}
    found |= {"written_each": one["written"] / units, "left": one["left"], "rss": one["rss"]}
    return found | ({"added": one["left"] - found["empty"]} if "empty" in found else {})


def by_case(measurements: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Case, dict[str, list[Mapping[str, Any]]]]]:
    """Yield the cases that were measured, each with the repeats of its subjects."""
    measured: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for one in measurements:
        measured.setdefault(one["case"], {}).setdefault(one["subject"], []).append(one)
    for name, subjects in measured.items():
        yield CASES[name], dict(sorted(subjects.items(), key=lambda item: _place_of(item[0])))


def _place_of(subject: str) -> tuple[int, str]:
    return next((n for n, system in enumerate(SYSTEMS) if subject.startswith(system)), len(SYSTEMS)), subject


def goals(result: Mapping[str, Any]) -> str:
    """Return one table of all goals of the measured cases."""
    rows = [["case", "goal", "target", "measured", "by CPU", ""], ["---"] * 6]
    for case, subjects in by_case(result["measurements"]):
        figures = {subject: summary(case, repeats) for subject, repeats in subjects.items()}
        rows += [[case.name, goal.words, goal.target, *_result(goal, figures)] for goal in GOALS[case.name]]
    return f"{opening(result)}\n{_table(rows)}{_trouble(result)}"


def _result(goal: Goal, figures: Figures) -> list[str]:
    value = goal.measured(figures)
    if value is None:
        return [NOT_MEASURED, "", "**not measured**"]
    by_cpu = goal.measured_by_cpu(figures)
    verdict = "reached" if goal.is_reached(value) else "**not reached**"
    busy = goal.is_elapsed_time and any(not figures[name]["calm"] for name in goal.subjects & figures.keys())
    return [number(value), "" if by_cpu is None else number(by_cpu), f"{verdict}, busy" if busy else verdict]


def tables(result: Mapping[str, Any]) -> str:
    """Return a table of all figures for each case."""
    parts = [opening(result)]
    for case, subjects in by_case(result["measurements"]):
        figures = {subject: summary(case, repeats) for subject, repeats in subjects.items()}
        words = case.words.format(**next(iter(subjects.values()))[0]["sizes"])
        parts += [f"### {case.name}\n", wrapped(f"{words[0].upper()}{words[1:]}.") + "\n"]
        parts.append(_timed(case, subjects, figures) if case.unit else _noted(case, figures))
    return "\n".join(parts) + _trouble(result)


def _timed(case: Case, subjects: Mapping[str, Sequence[Mapping[str, Any]]], figures: Figures) -> str:
    names = {**TIMED, **{note: note.replace("_", " ") for note in case.notes}}
    order = [*list(TIMED)[:4], *case.notes, *list(TIMED)[4:]]
    keys = [key for key in order if any(key in found for found in figures.values())]
    rows = [["subject", "durability", *(names[key].format(unit=case.unit) for key in keys)], ["---"] * (len(keys) + 2)]
    for subject, found in figures.items():
        rows.append([subject, subjects[subject][0]["keeps"], *(_shown(found, key) for key in keys)])
    return _table(rows)


def _noted(case: Case, figures: Figures) -> str:
    """Return the table of a case without rates: it has many notes and few subjects, so the subjects are columns."""
    rows = [["", *figures], ["---"] * (len(figures) + 1)]
    for note in case.notes:
        if any(note in found for found in figures.values()):
            rows.append([note.replace("_", " "), *(_shown(found, note) for found in figures.values())])
    return _table(rows)


def _table(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _trouble(result: Mapping[str, Any]) -> str:
    lines = [f"- {what}: {line}\n" for what in ("skipped", "failed") for line in result[what]]
    return "".join(["\n", *lines] if lines else [])


def opening(result: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return f"Machine: {result['machine']}. Sizes: {result['size']}.\n\n{wrapped(f'Versions: {versions}.')}\n"


def wrapped(words: str) -> str:
    return textwrap.fill(words, COLUMNS, break_long_words=False, break_on_hyphens=False)


def _shown(found: Mapping[str, float], key: str) -> str:
    if key not in found:
        return NOT_MEASURED
    if key in IN_BYTES:
        return size(found[key])
    if key == "quiet":
        return f"{found['quiet']:.0f}/{found['repeats']:.0f}"
    return number(found[key])


def number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"

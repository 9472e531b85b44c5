"""Turn measurements into medians, tables and goals."""

import statistics
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cases import CASES, Case, Figures, Goal

QUIET = 0.25
"""How many cores other programs may use while a measurement still counts as quiet."""
ENOUGH = 3
NOT_MEASURED = "-"
COLUMNS = 100  # of the lines of prose in a page


def quiet(figures: Mapping[str, Any]) -> bool:
    return float(figures.get("others", 0.0)) <= QUIET


def counted(repeats: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the quiet repeats if there are enough of them for a median, else all."""
    calm = [one for one in repeats if quiet(one)]
    return calm if len(calm) >= min(ENOUGH, len(repeats)) else repeats


def summary(case: Case, repeats: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the medians of one subject in one case, per unit."""
    chosen = counted(repeats)
    flat = [_per_unit(case, one) for one in chosen]
    found = {key: statistics.median(one[key] for one in flat) for key in flat[0]}
    if "rate" in found:
        found["best"] = max(one["rate"] for one in flat)
    if "called_again" in found:
        found["most_called_again"] = max(one["called_again"] for one in flat)
    return found | {"quiet": sum(map(quiet, repeats)), "repeats": len(repeats)}


def _per_unit(case: Case, one: Mapping[str, Any]) -> dict[str, float]:
    found = {"left": one["left"], "rss": one["rss"], **one["sizes"], **one["notes"]}
    if "seconds" not in one:
        return found
    units = case.count(one["sizes"])
    found |= {"rate": units / one["seconds"], "ms": one["seconds"] / units * 1000}
    return found | {"cpu_us": one["cpu"] / units * 1e6, "written_each": one["written"] / units}


def by_case(measurements: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for one in measurements:
        found.setdefault(one["case"], {}).setdefault(one["subject"], []).append(one)
    return {case: found[case] for case in CASES if case in found}


def markdown(result: Mapping[str, Any], *, tables: bool = True) -> str:
    """Return the report in Markdown; without the tables, only the goals."""
    parts = [opening(result)]
    for name, subjects in by_case(result["measurements"]).items():
        case = CASES[name]
        figures = {subject: summary(case, repeats) for subject, repeats in subjects.items()}
        keeps = {subject: repeats[0]["keeps"] for subject, repeats in subjects.items()}
        sizes = next(iter(subjects.values()))[0]["sizes"]
        shown = [table(case, figures, keeps)] if tables else []
        parts += [heading(case, sizes), *shown, goals(case, figures)]
    parts += [f"- skipped: {line}" for line in result["left_out"]]
    parts += [f"- failed: {line}" for line in result["failed"]]
    return "\n".join(parts).rstrip() + "\n"


def opening(result: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        f"Machine: {result['machine']}. Sizes: {result['size']}. Repeats: {result['repeats']}.",
        "",
        wrapped(f"Versions: {versions}."),
        "",
    ]
    return "\n".join(lines)


def heading(case: Case, sizes: Mapping[str, int]) -> str:
    words = case.words.format(**sizes)
    return f"### {case.name}\n\n{wrapped(f'{words[0].upper()}{words[1:]}.')}\n"


def wrapped(words: str) -> str:
    return textwrap.fill(words, COLUMNS, break_long_words=False, break_on_hyphens=False)


def table(case: Case, figures: Figures, keeps: Mapping[str, str]) -> str:
    columns = columns_of(case, figures)
    rows = [["subject", "durability", *(words for words, _ in columns)], ["---"] * (len(columns) + 2)]
    for subject, found in sorted(figures.items(), key=lambda item: place_of(item[0])):
        rows.append([subject, keeps[subject], *(_shown(found, key) for _, key in columns)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def place_of(subject: str) -> tuple[int, str]:
    systems = ("stepwell", "maf", "langgraph", "dbos", "raw")
    return next((n for n, system in enumerate(systems) if subject.startswith(system)), len(systems)), subject


def columns_of(case: Case, figures: Figures) -> list[tuple[str, str]]:
    timed = [
        (f"{case.unit}s/s", "rate"),
        ("best", "best"),
        (f"ms per {case.unit}", "ms"),
        (f"cpu µs per {case.unit}", "cpu_us"),
        (f"written per {case.unit}", "written_each"),
    ]
    always = [("on disk", "left"), ("peak memory", "rss")]
    noted = [(column.replace("_", " "), column) for column in case.columns]
    wanted = [*(timed if case.timed else []), *noted, *(always if case.disk else [])]
    wanted += [("quiet", "quiet")] if case.timed else []
    return [(words, key) for words, key in wanted if any(key in found for found in figures.values())]


def _shown(found: Mapping[str, float], key: str) -> str:
    if key not in found:
        return NOT_MEASURED
    value = found[key]
    if key in {"left", "empty", "rss", "written_each", "bytes"}:
        return size(value)
    if key == "quiet":
        return f"{found['quiet']:.0f}/{found['repeats']:.0f}"
    return number(value)


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def goals(case: Case, figures: Figures) -> str:
    rows = [row for goal in case.goals if (row := _goal(goal, figures)) is not None]
    if not rows:
        return ""
    head = ["| goal | target | measured | |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _goal(goal: Goal, figures: Figures) -> str | None:
    try:
        ratio = goal.ratio(figures)
    except (KeyError, ValueError, ZeroDivisionError):  # a figure is missing, or zero because no disk was used
        return None
    wanted = f"at least {goal.least:g}" if goal.least is not None else f"at most {goal.most:g}"
    verdict = "reached" if goal.reached(ratio) else "**not reached**"
    return f"| {goal.words} | {wanted} | {number(ratio)} | {verdict} |"

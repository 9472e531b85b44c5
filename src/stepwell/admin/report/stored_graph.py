"""Reads the graph of a workflow from the signature that is stored in every run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# The grammar of edge descriptions. A plain id stands as it is, any other as a Python string
# literal. Conditions are free text, so a list of cases is split where the next case starts.
_ID = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\w.:/-]+)"""
_IDS = rf"{_ID}(?:, {_ID})*"
_EACH = re.compile(rf"({_ID}) -> each of ({_IDS})")
_CHOSEN = re.compile(rf"({_ID}) -> those of ({_IDS}) (chosen by .*)", re.DOTALL)
_FIRST = re.compile(rf"({_ID}) -> first of (.*)", re.DOTALL)
_CASE = re.compile(rf"({_ID}) (if .*?|otherwise)(?:, (?={_ID} (?:if |otherwise))|$)", re.DOTALL)
_JOIN = re.compile(rf"all of ({_IDS}) -> ({_ID})")
_DIRECT = re.compile(rf"({_ID}) -> ({_ID})(?: (if .*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge from one node to another; `label` is its condition."""

    source: str
    target: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The nodes and arrows to draw."""

    start: str
    executors: tuple[str, ...]
    joins: tuple[str, ...]  # names of fan-ins, which no executor can have
    arrows: tuple[Arrow, ...]
    unread: tuple[str, ...] = ()  # edge descriptions that this version does not understand


def shape_of(signature: Mapping[str, Any]) -> Shape:
    """Return the graph that a `graph_signature` of a workflow or a checkpoint describes."""
    start = str(signature.get("start", ""))
    arrows: list[Arrow] = []
    joins: list[str] = []
    unread: list[str] = []
    for text in map(str, signature.get("edges", ())):
        edge_arrows = _arrows(text, f"\0fan-in {len(joins)}")
        if edge_arrows is None:
            unread.append(text)
            continue
        arrows += edge_arrows
        if _JOIN.fullmatch(text):
            joins.append(f"\0fan-in {len(joins)}")
    names = [start, *map(str, signature.get("executors", ())), *(end for a in arrows for end in (a.source, a.target))]
    executors = tuple(dict.fromkeys(name for name in names if name and name not in joins))
    return Shape(start, executors, tuple(joins), tuple(dict.fromkeys(arrows)), tuple(unread))


def _arrows(text: str, join: str) -> list[Arrow] | None:
    """Return the arrows of one edge; None if its description is not understood."""
    if match := _JOIN.fullmatch(text):
        return [*(Arrow(source, join) for source in _ids(match[1])), Arrow(join, _id(match[2]))]
    if match := _EACH.fullmatch(text):
        return [Arrow(_id(match[1]), target) for target in _ids(match[2])]
    if match := _CHOSEN.fullmatch(text):
        return [Arrow(_id(match[1]), target, match[3]) for target in _ids(match[2])]
    if match := _FIRST.fullmatch(text):
        return [Arrow(_id(match[1]), _id(case[1]), case[2]) for case in _CASE.finditer(match[2])]
    if match := _DIRECT.fullmatch(text):
        return [Arrow(_id(match[1]), _id(match[2]), match[3] or "")]
    return None


def _ids(text: str) -> Iterator[str]:
    return (_id(match[0]) for match in re.finditer(_ID, text))


def _id(text: str) -> str:
    """Return an executor id from a description."""
    # literal_eval evaluates nothing: the text comes from a store and may be hostile.
    return str(ast.literal_eval(text)) if text[0] in "'\"" else text

"""Reads the graph of a workflow from the signature that is stored in every run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.viz.diagram import Arrow, Diagram, DiagramNode, fan_in_id

# The grammar of edge descriptions. A plain id stands as it is, any other as a Python string
# literal. Conditions are free text, so a list of cases is split where the next case starts.
_ID = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\w.:/-]+)"""
_IDS = rf"{_ID}(?:, {_ID})*"
_EACH = re.compile(rf"({_ID}) -> each of ({_IDS})")
_CHOSEN = re.compile(rf"({_ID}) -> those of ({_IDS}) (chosen by .*)", re.DOTALL)
_FIRST = re.compile(rf"({_ID}) -> first of (.*)", re.DOTALL)
_CASE = re.compile(rf"({_ID}) (if .*?|otherwise)(?:, (?={_ID} (?:if |otherwise))|$)", re.DOTALL)
_JOIN = re.compile(rf"all of ({_IDS}) -> ({_ID})")
_DIRECT = re.compile(rf"({_ID}) -> ({_ID})(?: (if .*|otherwise))?", re.DOTALL)


def stored_diagram(signature: Mapping[str, Any]) -> Diagram:
    """Return the graph that a `graph_signature` of a workflow or a checkpoint describes.

    An edge whose description this version does not understand is only in its `lines`.
    """
    start, lines = str(signature.get("start", "")), tuple(map(str, signature.get("edges", ())))
    arrows: list[Arrow] = []
    fan_ins: list[str] = []
    for text in lines:
        fan_in = fan_in_id(len(fan_ins))
        arrows += _arrows(text, fan_in)
        if _JOIN.fullmatch(text):
            fan_ins.append(fan_in)
    names = [start, *map(str, signature.get("executors", ())), *(end for a in arrows for end in (a.source, a.target))]
    nodes = [DiagramNode(name) for name in dict.fromkeys(names) if name and name not in fan_ins]
    nodes += [DiagramNode(id, "fan-in") for id in fan_ins]
    return Diagram(tuple(nodes), tuple(dict.fromkeys(arrows)), start, lines)


def _arrows(text: str, join: str) -> list[Arrow]:
    """Return the arrows of one edge; none if its description is not understood."""
    if match := _JOIN.fullmatch(text):
        return [*(Arrow(source, join) for source in _ids(match[1])), Arrow(join, _id(match[2]))]
    if match := _EACH.fullmatch(text):
        return [Arrow(_id(match[1]), target) for target in _ids(match[2])]
    if match := _CHOSEN.fullmatch(text):
        return [Arrow(_id(match[1]), target, match[3], dotted=True) for target in _ids(match[2])]
    if match := _FIRST.fullmatch(text):
        return [Arrow(_id(match[1]), _id(case[1]), case[2], dotted=True) for case in _CASE.finditer(match[2])]
    if match := _DIRECT.fullmatch(text):
        return [Arrow(_id(match[1]), _id(match[2]), match[3] or "", dotted=bool(match[3]))]
    return []


def _ids(text: str) -> Iterator[str]:
    return (_id(match[0]) for match in re.finditer(_ID, text))


def _id(text: str) -> str:
    """Return an executor id from a description."""
    # literal_eval evaluates nothing: the text comes from a store and may be hostile.
    return str(ast.literal_eval(text)) if text[0] in "'\"" else text

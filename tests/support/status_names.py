"""Finds the names of statuses in what people read, where only their words belong."""

from __future__ import annotations

import re

from stepwell import WorkflowRunState

_NAMES = re.compile(rf"\b(?:{'|'.join(WorkflowRunState)})\b")


def status_names(output: str) -> list[str]:
    return _NAMES.findall(output)

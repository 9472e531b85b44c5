"""The kit of LangChain without the middleware of ours, as of any graph that was compiled by somebody else."""

from __future__ import annotations

from typing import Any

from .langchain import made


def agent(kind: str, url: str) -> Any:
    return made(kind, url, [])

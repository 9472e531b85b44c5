"""The effects of a handler of Agent Framework on its run."""

from __future__ import annotations

from typing import Any

from stepwell.engine.handler.internal_context import InternalContext
from stepwell.graph.executor import HandlerTable
from stepwell.graph.type_matching import describe

_ASK = "ask"


class Effects:
    """Makes the effects of one call part of its delivery, and keeps them as data: they can be made again."""

    def __init__(self, ctx: InternalContext) -> None:
        self.ctx = ctx
        self.made: list[list[Any]] = []

    def make(self, method: str, *arguments: Any) -> None:
        """Call a method of the context."""
        getattr(self.ctx, method)(*arguments)
        self.made.append([method, *arguments])

    def ask(self, data: Any, response_type: Any, request_id: str) -> None:
        """Ask for a response."""
        self.ctx.request_info(data, response_type, request_id=request_id)
        self.made.append([_ASK, data, describe(response_type), request_id])

    def repeat(self, made: list[list[Any]], handlers: HandlerTable) -> None:
        """Make effects again that another call has made; `handlers` know the types of responses by their names."""
        for method, *arguments in made:
            if method != _ASK:
                self.make(method, *arguments)
                continue
            data, name, request_id = arguments
            types = handlers.response_types(data)
            self.ask(data, next((kind for kind in types if describe(kind) == name), Any), request_id)

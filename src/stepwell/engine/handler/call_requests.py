"""What one handler call asks people, and takes back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from stepwell.engine.handler.branches import Branch
from stepwell.engine.handler.drive_scope import DriveScope
from stepwell.engine.intake.responses import check_request_id, check_withdrawal, make_request
from stepwell.graph.context import NO_DEFAULT
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.log_keys import ask_key
from stepwell.model.message import Delivery
from stepwell.model.request import Request
from stepwell.storage import ids


class HandlerRequests:
    """The requests of one handler call, staged until the commit; and the questions it waits for."""

    def __init__(self, scope: DriveScope, delivery: Delivery, at: Checkpoint) -> None:
        self._scope, self._delivery, self._at = scope, delivery, at
        self.asked: list[Request] = []
        self.withdrawn: list[str] = []

    def ask(self, data: object, response_type: Any, **options: Any) -> str:
        """Ask, with the response going to a response handler; return the id of the request."""
        request = self._make(data, response_type, f"{self._delivery.id}", len(self.asked), **options)
        self.asked.append(request)
        return request.id

    def prepare_question(
        self, branch: Branch, data: object, response_type: Any, **options: Any
    ) -> tuple[str, Callable[[], Request]]:
        """Return the key of a question that a branch waits for, and a function that makes it."""
        key = ask_key(self._delivery.id, branch.count("ask"), branch.id)
        return key, lambda: self._make(data, response_type, key, 0, waiting=key, **options)

    def withdraw(self, request_id: str) -> None:
        """Take a request back. Raises RequestError if that cannot be done."""
        others = [request for request in self.asked if request.id != request_id]
        if len(others) < len(self.asked):
            self.asked = others
            return
        check_withdrawal(self._at, request_id)
        self.withdrawn.append(request_id)

    def _make(
        self,
        data: object,
        response_type: Any,
        place: str,
        number: int,
        *,
        request_id: str | None = None,
        deadline: datetime | timedelta | None = None,
        default: Any = NO_DEFAULT,
        waiting: str | None = None,
    ) -> Request:
        check_request_id(request_id, {*self._at.requests, *[request.id for request in self.asked]})
        return make_request(
            request_id or ids.request_id(self._scope.run_id, self._scope.epoch, place, number),
            self._scope.graph.executors[self._delivery.executor],
            data,
            response_type,
            deadline=deadline,
            default=default,
            waiting=waiting,
            pack=self._scope.pack,
        )

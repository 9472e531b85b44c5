"""The page behind a response link: a form, and what became of the response."""

from __future__ import annotations

from html import escape
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from stepwell.admin.questions import question_of
from stepwell.admin.values import to_lines
from stepwell.errors import CannotUnseal, StepwellError, UnknownRequest
from stepwell.server.problems import describe_problem
from stepwell.server.response_links.form import form_fields, read_form
from stepwell.server.response_links.signature import ResponseLink, verify
from stepwell.server.responses import send_checked_response
from stepwell.server.services import RouteSet, Services
from stepwell.storage import clock
from stepwell.storage.pending_requests import PendingRequest

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 34rem; margin: 0 auto; padding: 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid; padding-left: .8rem; }
label { display: block; } small { display: block; opacity: .8; }
textarea, select, input, button { font: inherit; width: 100%; box-sizing: border-box; padding: .5rem; }
button { margin-top: 1rem; padding: .8rem; }
"""


def make_routes(services: Services) -> RouteSet:
    """Return the routes of response links."""

    async def show(request: Request) -> Response:
        try:
            link = verify(request.path_params["token"], services.key, clock.seconds())
            pending = await _find(services, link)
            if request.method == "POST":
                body = (await request.body()).decode("utf-8", "replace")
                value = read_form(pending.response_schema, dict(parse_qsl(body, keep_blank_values=True)))
                await send_checked_response(services.storage, link.run_id, link.request_id, value, by=link.by)
                return _page("Thank you", "<p>Your response is stored.</p>")
        except StepwellError as error:
            problem = describe_problem(error)
            hint = f"<p>{escape(problem.hint)}</p>" if problem.hint else ""
            return _page("This did not work", f"<p>{escape(problem.detail)}</p>{hint}", problem.status)
        return _page("A question for you", _form(pending))

    async def style(request: Request) -> Response:
        return Response(_STYLE, media_type="text/css")

    return RouteSet([Route("/respond.css", style), Route("/respond/{token}", show, methods=["GET", "POST"])])


async def _find(services: Services, link: ResponseLink) -> PendingRequest:
    pending = await services.storage.get_request(link.request_id, run_id=link.run_id)
    if pending.asked_at.isoformat() != link.asked_at:
        raise UnknownRequest(
            "the question of this link was taken back, and asked anew",
            run_id=link.run_id,
            request_id=link.request_id,
        )
    return pending


def _form(pending: PendingRequest) -> str:
    try:
        stored: Any = pending.data
        question = escape(question_of(stored, longest=2000))
        context = escape("\n".join(to_lines(stored)))
    except CannotUnseal:
        question, context = "The question is sealed, and this server does not have the key.", ""
    due = "" if pending.deadline is None else f"<p>Please answer by {escape(pending.deadline.isoformat())}.</p>"
    answered = "<p><strong>It has been answered already.</strong></p>" if pending.answered else ""
    shown = "" if context in ("", question) else f"<pre>{context}</pre>"
    fields = "".join(form_fields(pending.response_schema))
    about = escape(f"{pending.workflow_name}, run {pending.run_id}")
    return (
        f"<p><strong>{question}</strong></p>{shown}{due}{answered}"
        f'<form method="post">{fields}<button type="submit">Send</button></form><p><small>{about}</small></p>'
    )


def _page(title: str, content: str, status: int = HTTPStatus.OK) -> Response:
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="../respond.css"><h1>{escape(title)}</h1>{content}',
        status,
    )

"""What somebody tries who means harm: at the socket of a real server, and with every route."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Mount, Route

from stepwell import SQLiteCheckpointStorage
from stepwell.server import Identity, Role, ServerLimits, Tokens, app
from stepwell.server.api.routes import OPERATIONS
from stepwell.server.event_stream import StreamItem
from tests.server.clients import ADA, serving
from tests.server.flows import counting_down, refunds
from tests.server.processes import HEADERS, TOKEN, ServerProcess, server
from tests.support.operating_runs import Order, asking, counting

process = pytest.mark.process
# Everybody may reach these: a page without data, the exchange of a token, and what a signed link opens.
PUBLIC = {"/login", "/respond.css", "/respond/{token}", "/studio"}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("attacked") / "runs.db"

    async def fill() -> None:
        async with SQLiteCheckpointStorage(path) as storage:
            await counting_down.run(1, run_id="numbers", checkpoint_storage=storage)
            await refunds.run(400, run_id="refund", checkpoint_storage=storage)

    asyncio.run(fill())
    with server(str(path), "--work", "tests.server.flows:refunds") as one:
        yield one


def send(one: ServerProcess, request: str, body: bytes = b"") -> bytes:
    """Send what no client would, and return the answer."""
    host, port = one.address.removeprefix("http://").split(":")
    filled = request.format(host=f"{host}:{port}", token=f"Authorization: Bearer {TOKEN}")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(filled.replace("\n", "\r\n").encode("latin-1") + b"Connection: close\r\n\r\n" + body)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received


@process
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("GET /api/v1/runs HTTP/1.1\nHost: evil.example\n{token}\n", 421),  # a name that leads here
        ("GET /api/v1/runs HTTP/1.1\nHost: [evil\n{token}\n", 421),
        ("GET /api/v1/runs HTTP/1.1\nHost: 127.0.0.1@evil.example\n{token}\n", 421),
        ("POST /api/v1/retry HTTP/1.1\nHost: {host}\nOrigin: http://[evil\n{token}\nContent-Length: 0\n", 403),
        ("POST /api/v1/retry HTTP/1.1\nHost: {host}\nOrigin: null\n{token}\nContent-Length: 0\n", 403),
        ("POST /api/v1/retry HTTP/1.1\nHost: {host}\n{token}\nContent-Length: \xb2\n", 400),
        ("POST /api/v1/retry HTTP/1.1\nHost: {host}\n{token}\nContent-Length: 99999999999\n", 413),
        ("GET /studio/../../../../etc/passwd HTTP/1.1\nHost: {host}\n", 404),
        ("GET /studio/%2e%2e/page.py HTTP/1.1\nHost: {host}\n", 404),
        ("GET /studio/%2e%2e%2fpage.py HTTP/1.1\nHost: {host}\n", 404),
        ("GET /login?token=%0d%0aX-Evil:%201 HTTP/1.1\nHost: {host}\n", 401),
        ("GET /api/v1/runs HTTP/1.1\nHost: {host}\nCookie: stepwell_token=wrong\n", 401),
        ("HEAD /api/v1/runs/refund/events/stream HTTP/1.1\nHost: {host}\n{token}\n", 405),
        ("TRACE /api/v1/runs HTTP/1.1\nHost: {host}\n{token}\n", 405),
    ],
)
def test_requests_that_no_client_sends(attacked: ServerProcess, request_: str, status: int) -> None:
    answer = send(attacked, request_)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert b"x-evil" not in answer.lower()
    assert b"root:" not in answer
    assert b"import" not in answer


@process
def test_json_that_is_meant_to_break_its_reader(attacked: ServerProcess) -> None:
    json = {**HEADERS, "content-type": "application/json"}
    with httpx.Client(base_url=f"{attacked.address}/api/v1", headers=json, timeout=20) as client:

        def post(path: str, content: str | bytes, **headers: str) -> tuple[int, str]:
            answer = client.post(path, content=content, headers=headers)
            return answer.status_code, answer.json()["detail"]

        respond = "/runs/refund/requests/approval/response"
        for depth in (300, 900, 985, 990, 995, 1000, 100_000):
            deep = '{"a":' * depth + "1" + "}" * depth
            for path, content in (
                ("/runs", f'{{"workflow": "refunds", "input": {deep}}}'),
                ("/runs/numbers/fork", f'{{"add": {{"x": {deep}}}}}'),
                ("/runs/numbers/fork/preview", f'{{"add": {{"x": {deep}}}}}'),
                (respond, f'{{"value": {deep}}}'),
            ):
                assert post(path, content)[0] in (400, 422), (depth, path)
                assert post(path, content, **{"idempotency-key": f"{depth} {path}"})[0] in (400, 422)
        assert "nested too deeply" in post(respond, '{"value": ' + "[" * 300 + "]" * 300 + "}")[1]
        for wrong in ("NaN", "Infinity", "1e999", "9" * 5000, '"\\ud800"', "'", "{", "[1,]", "\0"):
            status, _ = post("/runs", f'{{"workflow": "refunds", "input": {wrong}}}')
            assert status in (400, 422), wrong
        assert post("/runs", b'{"workflow": "\xff"}')[0] == 400
        assert (
            post("/runs", '{"workflow": "refunds", "workflow": "other", "input": 1}')[0] == 404
        )  # the last one counts
        assert post("/runs", '{"workflow": "refunds", "input": 1, "by": "somebody else"}')[0] == 422
        assert post("/retry", "{}", **{"content-type": "text/plain"})[0] == 415  # what a form of any site may send
        assert client.get("/runs/refund").json()["status"] == "waiting"


@pytest.mark.process
async def test_a_body_that_never_arrives_is_not_waited_for(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    async with serving(storage, limits=ServerLimits(patience=0.2)) as client:

        async def trickle() -> Any:
            for _ in range(100):
                yield b" "
                await asyncio.sleep(0.05)

        async with asyncio.timeout(10):
            slow = await client.post("/api/v1/retry", content=trickle())
        # In this process the client waits until its body is sent; over a network it is cut off.
        assert (slow.status_code, slow.headers["connection"]) == (408, "close")
    await storage.close()


def test_every_route_needs_a_token_or_is_meant_for_everybody(tmp_path: Path) -> None:
    application = app(SQLiteCheckpointStorage(tmp_path / "runs.db"), auth=ADA)
    paths = {route.path for route in application.routes if isinstance(route, Route | Mount)}
    assert len(paths) == len(application.routes)

    async def ask_without_a_token() -> None:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for one in OPERATIONS:
                answer = await client.request(one.method, f"/api/v1{one.path}".format(run_id="r", request_id="q"))
                assert answer.status_code == 401, one.name
            for path in paths - PUBLIC - {"/api/v1"}:
                for method in ("GET", "POST", "DELETE"):
                    answer = await client.request(method, path.format(workflow="w"), json={})
                    assert answer.status_code in (401, 404, 405), (method, path, answer.text)
            assert (await client.get("/")).status_code == 401
            assert (await client.get("/login")).status_code == 401
            assert (await client.get("/respond/forged.token")).status_code == 404

    asyncio.run(ask_without_a_token())


def test_a_name_of_an_event_adds_no_line_to_a_stream() -> None:
    item = StreamItem("x\nid: 99\r\ndata: {}\r\rdata: no", {"text": "a\n\nid: 7\u2028"}, "3.1")
    lines = item.encode().decode().split("\n")
    assert lines[0] == "id: 3.1"
    assert [line.partition(":")[0] for line in lines] == ["id", "event", "data", "", ""]
    assert "\r" not in item.encode().decode()


async def test_strangers_use_up_nobody_elses_rate(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    application = app(storage, auth=Tokens({ADA: Identity("ada", Role.OPERATE)}), limits=ServerLimits(writes=3))
    codes: dict[str, list[int]] = {}
    for address, token in [("192.0.2.7", "wrong"), ("192.0.2.8", "wrong"), ("192.0.2.7", ADA)]:
        transport = httpx.ASGITransport(application, client=(address, 1))
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            count = 9 if not codes else 1
            answers = [await client.post("/api/v1/retry", json={}) for _ in range(count)]
            codes[f"{address} {token}"] = [answer.status_code for answer in answers]
    assert codes["192.0.2.7 wrong"][-1] == 429
    assert codes["192.0.2.8 wrong"] == [401]
    assert codes[f"192.0.2.7 {ADA}"] == [200]
    await storage.close()


async def test_a_response_link_is_worth_one_answer(tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db")
    await asking(storage).run(Order(7, []), run_id="one")
    await asking(storage).run(Order(7, []), run_id="two")
    await counting(storage).run(1, run_id="numbers")
    async with serving(storage) as client:
        order = {"by": "cy"}
        links = [
            (await client.post(f"/api/v1/runs/{run}/requests/refund-7/link", json=order)).json()["path"]
            for run in ("one", "two")
        ]
        client.headers.pop("authorization")
        bodies = [link.rpartition("/")[2].partition(".") for link in links]
        forged = [
            f"/respond/{bodies[0][0]}.{bodies[1][2]}",
            f"/respond/{bodies[1][0]}.",
            "/respond/.",
            links[0] + "x" * 9,
        ]
        for path in forged:
            assert (await client.post(path, data={"value": "true"})).status_code == 404, path
        assert (await client.post(links[0], data={"value": "true"})).status_code == 200
        # Sent again, as a browser does that is reloaded, it is the same answer; another one comes too late.
        assert (await client.post(links[0], data={"value": "true"})).status_code == 200
        assert (await client.post(links[0], data={"value": "false"})).status_code == 409
        await asking(storage).run(run_id="one")
        assert (await client.post(links[0], data={"value": "false"})).status_code in (404, 409)
    assert [request.run_id for request in await storage.pending_requests()] == ["two"]
    await storage.close()

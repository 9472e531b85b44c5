"""Who is let in, from where, and what is refused."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from stepwell import DefinitionError, Seal, SQLiteCheckpointStorage
from stepwell.server import Anyone, Identity, Role, ServerLimits, Tokens, app, running
from stepwell.server.process import bind
from tests.server.clients import ADA, BOB, serving, with_token
from tests.support.operating_runs import Order, asking, counting

HOSTILE = '<script>alert("x")</script>\u202e'


@pytest.fixture
def storage(tmp_path: Path) -> SQLiteCheckpointStorage:
    return SQLiteCheckpointStorage(tmp_path / "runs.db")


async def test_another_host_and_a_foreign_page_are_refused(storage: Any) -> None:
    async with serving(storage, hosts=["runs.example"], origins=["https://friend.example"]) as client:
        path = "/api/v1/retry"
        for host, status in [("evil.example", 421), ("runs.example", 200), ("localhost:8642", 200), ("", 421)]:
            answer = await client.post(path, json={}, headers={"host": host})
            assert answer.status_code == status, host
        for origin, status in [
            ("http://evil.example", 403),
            ("null", 403),
            ("http://127.0.0.1", 200),
            ("https://friend.example", 200),
        ]:
            answer = await client.post(path, json={}, headers={"origin": origin})
            assert answer.status_code == status, origin
        friend = await client.get("/api/v1/caller", headers={"origin": "https://friend.example"})
        assert friend.headers["access-control-allow-origin"] == "https://friend.example"
    async with serving(storage) as client:
        stranger = await client.get("/api/v1/caller", headers={"origin": "https://friend.example"})
        assert "access-control-allow-origin" not in stranger.headers
        assert stranger.headers["content-security-policy"].startswith("default-src 'self'")
        assert stranger.headers["x-content-type-options"] == "nosniff"
        preflight = await client.options("/api/v1/runs", headers={"origin": "https://friend.example"})
        assert "access-control-allow-origin" not in preflight.headers


async def test_a_token_in_an_address_becomes_a_cookie(storage: Any) -> None:
    async with serving(storage) as client:
        client.headers.pop("authorization")
        assert (await client.get("/api/v1/caller")).status_code == 401
        assert (await client.get("/login", params={"token": "wrong"})).status_code == 401
        entered = await client.get("/login", params={"token": BOB})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"].lower()
        assert "samesite=strict" in cookie
        assert "httponly" in cookie
        assert (await client.get("/api/v1/caller")).json()["name"] == "bob"


async def test_a_server_that_is_given_no_token_makes_one_up(storage: Any, caplog: pytest.LogCaptureFixture) -> None:
    tokens = []
    for _ in range(2):
        caplog.clear()
        served = app(storage)
        (record,) = [record for record in caplog.records if "token" in record.getMessage()]
        tokens.append(record.getMessage().rpartition(" ")[2])
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/api/v1/caller")).status_code == 401
            assert (await client.get("/api/v1/caller", headers=with_token(tokens[-1]))).json()["role"] == "operate"
    assert len(set(tokens)) == 2
    assert min(map(len, tokens)) >= 32


async def test_without_a_token_only_this_machine_is_let_in(storage: Any) -> None:
    anyone = app(storage, auth=Anyone())
    for address, status in [("127.0.0.1", 200), ("::1", 200), ("192.0.2.7", 403)]:
        transport = httpx.ASGITransport(anyone, client=(address, 123))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/api/v1/caller")).status_code == status
    with pytest.raises(DefinitionError, match="must not be reached from other machines"):
        bind("0.0.0.0", 0, anyone.state.services)
    bind("127.0.0.1", 0, anyone.state.services).close()
    bind("0.0.0.0", 0, app(storage, auth=ADA).state.services).close()
    with pytest.raises(DefinitionError, match="too short"):
        app(storage, auth="secret")


async def test_a_program_says_itself_who_calls(storage: Any) -> None:
    async def look_up(connection: Any) -> Identity | None:
        name = connection.headers.get("x-user")
        return None if name is None else Identity(name, Role.RESPOND)

    async with serving(storage, auth=look_up) as client:
        assert (await client.get("/api/v1/caller", headers={"x-user": "dan"})).json()["name"] == "dan"
        assert (await client.get("/api/v1/caller")).status_code == 401
        assert (await client.post("/api/v1/retry", json={}, headers={"x-user": "dan"})).status_code == 403


async def test_it_is_mounted_under_any_path_of_another_program(storage: Any) -> None:
    await counting(storage).run(1, run_id="a/b")
    inner = app(storage, auth=Tokens({ADA: Identity("ada", Role.OPERATE)}))
    outer = Starlette(routes=[Mount("/tools/stepwell", inner)])
    transport = httpx.ASGITransport(outer)
    async with running(inner), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/tools/stepwell/api/v1/runs/a%2Fb/state", headers=with_token(ADA))
        assert answer.json()["run_id"] == "a/b"
        assert (await client.get("/tools/stepwell/login", params={"token": ADA})).headers[
            "location"
        ] == "/tools/stepwell/"


async def test_sizes_rates_and_streams_have_limits(storage: Any) -> None:
    limits = ServerLimits(body=100, writes=5, streams_each=0)
    async with serving(storage, limits=limits) as client:
        large = await client.post("/api/v1/runs", content=b" " * 101)
        assert (large.status_code, large.json()["status"]) == (413, 413)

        async def chunks() -> Any:
            for _ in range(30):
                yield b"     "

        assert (await client.post("/api/v1/runs", content=chunks())).status_code == 413
        codes = [(await client.post("/api/v1/retry", json={})).status_code for _ in range(12)]
        assert codes[0] == 200
        assert codes[-1] == 429
        assert (await client.get("/api/v1/runs")).status_code == 200  # reading is not limited
        await counting(storage).run(1, run_id="numbers")
        refused = await client.get("/api/v1/runs/numbers/events/stream")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")


async def test_a_response_link_answers_one_request_without_a_token(storage: Any) -> None:
    await asking(storage).run(Order(7, [HOSTILE]), run_id=f"r {HOSTILE}")
    async with serving(storage) as client:
        (request,) = (await client.get("/api/v1/requests")).json()["requests"]
        run = httpx.URL("http://x/", params={"r": request["run_id"]}).query.decode()[2:].replace("+", "%20")
        created = await client.post(f"/api/v1/runs/{run}/requests/refund-7/link", json={"by": "cy@example.org"})
        link = created.json()["path"]
        client.headers.pop("authorization")
        page = (await client.get(link)).text
        assert HOSTILE not in page
        assert escape("<script>") in page
        assert "<script" not in page
        assert 'name="viewport"' in page
        assert (await client.get("/respond.css")).headers["content-type"].startswith("text/css")
        assert (await client.get(link[:-2])).status_code == 404
        assert (await client.get("/respond/x.y")).status_code == 404
        assert (await client.post(link, data={"value": "maybe"})).status_code == 422
        answered = await client.post(link, data={"value": "true"})
        assert (answered.status_code, "is stored" in answered.text) == (200, True)
        assert (await client.post(link, data={"value": "false"})).status_code == 409
        assert (await client.get("/api/v1/requests")).status_code == 401
        client.headers.update(with_token(ADA))
        (request,) = (await client.get("/api/v1/requests")).json()["requests"]
        assert request["answered_by"] == "cy@example.org"


async def test_servers_with_one_key_honour_each_others_links(storage: Any) -> None:
    def know_everybody(_: object) -> Identity:
        return Identity("ada", Role.OPERATE)

    await asking(storage).run(Order(7, []), run_id="order")
    key, other_key = b"k" * 32, b"o" * 32
    async with (
        serving(storage, auth=know_everybody, key=key) as client,
        serving(storage, auth=ADA, key=key) as same,
        serving(storage, auth=know_everybody, key=other_key) as other,
    ):
        link = (await client.post("/api/v1/runs/order/requests/refund-7/link", json={"by": "cy"})).json()["path"]
        assert [(await each.get(link)).status_code for each in (client, same, other)] == [200, 200, 404]
    with pytest.raises(DefinitionError, match="32 bytes or more, not 5"):
        app(storage, key=b"short")
    with pytest.raises(DefinitionError, match="'shop' is not of the form https://HOST/PATH"):
        app(storage, url="shop")


async def test_a_response_link_expires_and_belongs_to_its_server(storage: Any, later: Any) -> None:
    await asking(storage).run(Order(7, []), run_id="order")
    order = {"by": "cy", "seconds": 60}
    async with serving(storage, auth=ADA) as client, serving(storage, auth=BOB) as other:
        link = (await client.post("/api/v1/runs/order/requests/refund-7/link", json=order)).json()["path"]
        assert (await client.get(link)).status_code == 200
        assert (await other.get(link)).status_code == 404
        later(seconds=61)
        assert (await client.get(link)).status_code == 410


async def test_sealed_values_are_shown_as_such(tmp_path: Path) -> None:
    path = tmp_path / "sealed.db"
    async with SQLiteCheckpointStorage(path, seal=Seal({"k": bytes(range(32))}, "k")) as sealed:
        await asking(sealed).run(Order(7, ["secret hat"]), run_id="order")
    async with SQLiteCheckpointStorage(path) as blind, serving(blind) as client:
        (request,) = (await client.get("/api/v1/requests")).json()["requests"]
        assert (request["sealed"], request["question"], request["data"]) == (True, None, None)
        run = await client.get("/api/v1/runs/order")
        assert (run.status_code, run.json()["type"]) == (424, "CannotUnseal")
        assert "secret hat" not in run.text
        assert re.search("key", run.json()["hint"])

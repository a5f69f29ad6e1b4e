"""The middleware refuses every request that is not from the server's own page."""

import asyncio
import json
import socket

import pytest

from glassformer.server import auth_middleware, server
from glassformer.server.auth_middleware import MAX_BODY_BYTES, TOKEN_HEADER

PORT = 8765
OWN = f"127.0.0.1:{PORT}"


def ask(path="/api/refs", method="GET", headers=(), query=b"", body=(b"",), app=None):
    """Return (status, body, headers) of a request, or None after a disconnect.

    In a body, None is a disconnect and ... a stall.
    """
    sent, left = [], list(body)

    async def inner(scope, receive, send):
        got = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": got["body"]})

    async def receive():
        if not left or left[0] is ...:
            await asyncio.sleep(3600)
        part = left.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def send(message):
        sent.append(message)

    pairs = [(n.encode(), v.encode("latin-1")) for n, v in headers]
    scope = {
        "type": "http", "path": path, "method": method, "headers": pairs, "query_string": query,
    }  # fmt: skip
    asyncio.run(auth_middleware.AuthMiddleware(app or inner, "word", PORT)(scope, receive, send))
    if not sent:
        return None
    return sent[0]["status"], b"".join(m["body"] for m in sent[1:]), dict(sent[0]["headers"])


GOOD = [("host", OWN), (TOKEN_HEADER, "word")]
POST = [*GOOD, ("content-type", "application/json")]


def test_requests_of_the_page_are_permitted():
    assert ask(headers=GOOD)[0] == 200
    assert (
        ask(headers=[*GOOD, ("origin", f"http://{OWN}"), ("sec-fetch-site", "same-origin")])[0]
        == 200
    )
    assert ask(headers=[("Host", f"localhost:{PORT}"), (TOKEN_HEADER.title(), "word")])[0] == 200
    assert ask("/", headers=[("host", OWN)], query=b"token=word")[0] == 200
    assert (
        ask("/", headers=[("host", OWN), ("sec-fetch-site", "cross-site")], query=b"token=word")[0]
        == 200
    )
    assert ask(method="POST", headers=POST, body=(b"{", b"}"))[:2] == (200, b"{}")
    assert (
        ask(method="POST", headers=[*GOOD, ("content-type", "Application/JSON; charset=utf-8")])[0]
        == 200
    )


REFUSED = {
    "no host": (403, "host", {"headers": GOOD[1:]}),
    "a foreign host": (403, "host", {"headers": [("host", f"evil.example:{PORT}"), *GOOD[1:]]}),
    "a host that begins like ours": (
        403,
        "host",
        {"headers": [("host", f"{OWN}.evil.example"), *GOOD[1:]]},
    ),
    "another port": (403, "host", {"headers": [("host", "127.0.0.1:80"), *GOOD[1:]]}),
    "no port": (403, "host", {"headers": [("host", "127.0.0.1"), *GOOD[1:]]}),
    "two hosts": (400, "host", {"headers": [*GOOD, ("host", "evil.example")]}),
    "a foreign origin": (403, "origin", {"headers": [*GOOD, ("origin", "https://evil.example")]}),
    "no origin to speak of": (403, "origin", {"headers": [*GOOD, ("origin", "null")]}),
    "https": (403, "origin", {"headers": [*GOOD, ("origin", f"https://{OWN}")]}),
    "sec-fetch-site": (
        403,
        "sec-fetch-site",
        {"headers": [*GOOD, ("sec-fetch-site", "cross-site")]},
    ),
    "the same site": (403, "sec-fetch-site", {"headers": [*GOOD, ("sec-fetch-site", "same-site")]}),
    "no token": (403, "token", {"headers": GOOD[:1]}),
    "another token": (403, "token", {"headers": [GOOD[0], (TOKEN_HEADER, "words")]}),
    "an empty token": (403, "token", {"headers": [GOOD[0], (TOKEN_HEADER, "")]}),
    "a token of no ASCII": (403, "token", {"headers": [GOOD[0], (TOKEN_HEADER, "wörd")]}),
    "a token in the query": (403, "token", {"headers": GOOD[:1], "query": b"token=word"}),
    "the page without": (403, "token", {"path": "/", "headers": GOOD[:1]}),
    "the page, token in the header": (403, "token", {"path": "/", "headers": GOOD}),
    "the page with a long query": (
        400,
        "20 fields",
        {"path": "/", "headers": GOOD[:1], "query": b"&" * 30 + b"token=word"},
    ),
    "no such path, no token": (403, "token", {"path": "/etc/passwd", "headers": GOOD[:1]}),
    "a form": (
        415,
        "content-type",
        {"method": "POST", "headers": [*GOOD, ("content-type", "text/plain")]},
    ),
    "no kind": (415, "content-type", {"method": "POST", "headers": GOOD}),
    "too large, said": (
        413,
        "body",
        {"method": "POST", "headers": [*POST, ("content-length", str(MAX_BODY_BYTES + 1))]},
    ),
    "too large by far, said": (
        413,
        "body",
        {"method": "POST", "headers": [*POST, ("content-length", "9" * 400)]},
    ),
    "too large, not said": (
        413,
        "body",
        {"method": "POST", "headers": POST, "body": [b"x" * 2**20] * 10},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_requests_are_refused(name):
    status, why, request = REFUSED[name]
    got = ask(**request)
    assert got[0] == status and why in json.loads(got[1])["error"], got


def test_a_body_that_does_not_arrive_times_out(monkeypatch):
    monkeypatch.setattr(auth_middleware, "BODY_SECONDS", 0.05)
    for body in [(...,), (b"{", ...)]:
        status, content, _ = ask(method="POST", headers=POST, body=body)
        assert status == 408 and json.loads(content)["code"] == "too_slow"
    assert ask(method="POST", headers=POST, body=(None,)) is None


def test_too_many_concurrent_requests_are_refused(monkeypatch):
    monkeypatch.setattr(auth_middleware, "MAX_CONCURRENT_REQUESTS", 0)
    assert ask(headers=GOOD)[0] == 429


def test_every_answer_has_security_headers():
    for answer in (ask(headers=GOOD), ask(headers=GOOD[:1])):
        headers = {name.decode(): value.decode() for name, value in answer[2].items()}
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY" and headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_a_ticket_opens_only_the_page_and_once(served):
    ticket = served.open.one_time_address
    token = ticket.partition("token=")[2]
    assert served.stranger.get("/api/refs", headers={TOKEN_HEADER: token}).status_code == 403
    assert served.stranger.get(ticket).status_code == 200
    assert served.stranger.get(ticket).status_code == 403
    assert served.stranger.get(served.open.address).status_code == 200


def test_an_expired_ticket_is_refused(monkeypatch):
    middleware = auth_middleware.AuthMiddleware(None, "word", PORT)

    def opens(ticket):
        scope = {"path": "/", "method": "GET", "headers": [(b"host", OWN.encode())]}
        return middleware.check(scope | {"query_string": f"token={ticket}".encode()})

    assert opens(middleware.new_ticket())
    monkeypatch.setattr(auth_middleware, "TICKET_SECONDS", -1.0)
    with pytest.raises(auth_middleware.RequestRefused) as refused:
        opens(middleware.new_ticket())
    assert refused.value.status == 403


# ── the server as it runs ──────────────────────────────────────────────────────────────────────
def test_the_page_needs_the_token(served):
    result = served.stranger.get(served.open.address)
    assert (
        result.status_code == 200 and result.headers["content-type"] == "text/html; charset=utf-8"
    )
    assert "frame-ancestors 'none'" in result.headers["content-security-policy"]
    policy = result.text.split('Content-Security-Policy" content="')[1].split('"')[0]
    assert "default-src &#x27;none&#x27;" in policy and "connect-src &#x27;self&#x27;" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert served.open.token in result.text
    assert served.stranger.get("/").status_code == 403


def test_it_listens_only_on_this_machine(served):
    assert served.open.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("header", [("Host", "evil.example"), ("Origin", "http://evil.example")])
def test_a_foreign_header_is_refused_despite_the_token(served, header):
    assert served.client.get("/api/refs", headers=dict([header])).status_code == 403
    assert served.client.get("/api/refs").status_code == 200


def test_preflight_requests_of_other_sites_are_refused(served):
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    result = served.stranger.options("/api/model", headers=asked)
    assert result.status_code == 403 and "access-control-allow-origin" not in result.headers
    mine = served.client.options("/api/model")
    assert mine.status_code == 405 and "access-control-allow-origin" not in mine.headers


@pytest.mark.parametrize(
    "path", ["/docs", "/openapi.json", "/api", "/api/", "/../../etc/passwd", "/api/jobs/x/y"]
)
def test_other_paths_do_not_exist(served, path):
    assert served.client.get(path).status_code == 404


def test_malformed_requests_are_refused(served):
    for output in (
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"x" * 70_000,
    ):
        with socket.create_connection(("127.0.0.1", served.open.port)) as raw:
            raw.sendall(output)
            raw.shutdown(socket.SHUT_WR)
            assert b" 200 " not in raw.recv(1000)
    assert served.client.get("/api/refs").status_code == 200


def test_an_incomplete_second_request_times_out(served, monkeypatch):
    monkeypatch.setattr(server, "MAX_SILENT_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", served.open.port), timeout=30) as wire:
        head = f"Host: 127.0.0.1:{served.open.port}\r\n{TOKEN_HEADER}: {served.open.token}\r\n\r\n"
        wire.sendall(f"GET /api/nothing HTTP/1.1\r\n{head}".encode())
        assert wire.recv(65536).startswith(b"HTTP/1.1 404")
        wire.sendall(b"GET /x")
        wire.settimeout(5)  # between MAX_SILENT_SECONDS and all other limits
        while wire.recv(65536):  # the rest of the answer
            pass

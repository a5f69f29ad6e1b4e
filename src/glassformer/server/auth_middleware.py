"""The door: who may come in, with how much, and for how long.

A page of another site can make a browser send requests here, and a name of another site can be made
to lead here (DNS rebinding). So: the Host must be this server's own, an Origin must be its own, and
every request must know the token, which only the address that was printed holds: in the query of
the page itself, in a header of everything else. Bodies are read whole, up to a size and a time,
before anyone looks at them.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from .errors import refusal_body

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

TOKEN_HEADER = "x-glassformer-token"
MAX_BODY_BYTES = 8 * 2**20 + 2**18  # bytes
BODY_SECONDS = 20.0  # for a body to arrive
TICKET_SECONDS = 30.0  # that a ticket is good for: a browser may take its time to start
MAX_CONCURRENT_REQUESTS = 32  # requests; bodies of all of them are held
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff", "x-frame-options": "DENY", "cache-control": "no-store",
    "referrer-policy": "no-referrer", "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


class RequestRefused(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.reason = status, why


class AuthMiddleware:
    """Around the application: only what may come in gets there."""

    def __init__(self, app: AsgiApp, token: str, port: int) -> None:
        self.app, self.token = app, token.encode()
        ends = ["", f":{port}"] if port == 80 else [f":{port}"]
        self.hosts = {f"{name}{end}" for name in ("127.0.0.1", "localhost") for end in ends}
        self.origins = {f"http://{host}" for host in self.hosts}
        self.active_requests = 0
        self.tickets: dict[bytes, float] = {}  # each opens the page once, until then

    def new_ticket(self) -> str:
        """What opens the page once. The command of a browser can be seen by all who use this
        machine: it gets a ticket and not the token.
        """
        made = secrets.token_urlsafe(24)
        self.tickets[made.encode()] = time.monotonic() + TICKET_SECONDS
        return made

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send) if scope["type"] == "lifespan" else None
        if self.active_requests >= MAX_CONCURRENT_REQUESTS:
            return await send_refusal(
                send, RequestRefused(429, "too many requests at once; try again")
            )
        self.active_requests += 1
        try:
            headers = self.check(scope)
            body = await _read_body(headers, receive)
        except RequestRefused as e:
            return await send_refusal(send, e)
        else:
            if body is not None:
                await self.app(scope, _replay_body(body, receive), _with_headers(send))
        finally:
            self.active_requests -= 1

    def check(self, scope: AsgiScope) -> dict[str, str]:
        """The headers of a request that may come in."""
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key = name.decode("latin-1").lower()
            if key in headers and key in ("host", "origin", "content-length", TOKEN_HEADER):
                raise RequestRefused(400, f"{key} is there twice")
            headers[key] = value.decode("latin-1")
        if headers.get("host", "").lower() not in self.hosts:
            raise RequestRefused(403, "this server answers only as 127.0.0.1 and localhost")
        if "origin" in headers and headers["origin"].lower() not in self.origins:
            raise RequestRefused(403, "a page of another origin may ask for nothing")
        site = headers.get("sec-fetch-site", "none")
        page = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
        if site not in ("none", "same-origin") and not page:
            raise RequestRefused(403, "a page of another site may ask for nothing")
        if page:
            given = _query_token(scope["query_string"])
        else:
            given = headers.get(TOKEN_HEADER, "")
        said = given.encode("utf-8", "replace")
        if page and said in self.tickets:
            if time.monotonic() > self.tickets.pop(said):
                raise RequestRefused(
                    403, "this link was for once, and soon: open the address it printed"
                )
        elif not secrets.compare_digest(said, self.token):
            raise RequestRefused(
                403, "no token, or not that of this server: open the address it printed"
            )
        if scope["method"] == "POST" and _content_type(headers) != "application/json":
            raise RequestRefused(415, "expected content-type: application/json")
        return headers


def _query_token(query: bytes) -> str:
    """The token in the query of the page."""
    try:
        asked = parse_qs(query[:1_000].decode("latin-1"), max_num_fields=20)
    except ValueError:
        raise RequestRefused(400, "the query has more than 20 fields") from None
    return asked.get("token", [""])[0]


def _content_type(headers: dict[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def _read_body(headers: dict[str, str], receive: Receive) -> bytes | None:
    """All of a request's body; None if whoever sent it has gone."""
    size = headers.get("content-length", "0")
    if size.isdecimal() and int(size[:20]) > MAX_BODY_BYTES:
        raise RequestRefused(413, f"a request has at most {MAX_BODY_BYTES:,} bytes")
    parts: list[bytes] = []
    total, end = 0, asyncio.get_running_loop().time() + BODY_SECONDS
    while True:
        left = end - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, left))
        except asyncio.TimeoutError:
            raise RequestRefused(408, f"a request has {BODY_SECONDS:g} s to arrive") from None
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        total += len(parts[-1])
        if total > MAX_BODY_BYTES:
            raise RequestRefused(413, f"a request has at most {MAX_BODY_BYTES:,} bytes")
        if not message.get("more_body"):
            return b"".join(parts)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """A body that was read, to be read by the application."""
    sent = False

    async def read() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            return await receive()  # which waits until the sender has gone
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message.get("headers", [])}
            own = [
                (n.encode(), v.encode())
                for n, v in SECURITY_HEADERS.items()
                if n.encode() not in there
            ]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await send(message)

    return sent


async def send_refusal(send: Send, refused: RequestRefused) -> None:
    """Says why in a line. The connection ends: what was not read is not waited for."""
    body = refusal_body(refused.status, refused.reason)
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    start = {"type": "http.response.start", "status": refused.status}
    await _with_headers(send)(start | {"headers": [*kind, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})

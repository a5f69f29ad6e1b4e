"""Checks of every request before the application: host, origin, token, size and time.

Other sites can make a browser send requests to this server, or point a domain name at its address
(DNS rebinding). Therefore Host and Origin must match the server, and every request must contain the
token of the printed address: requests for the page in the query, other requests in a header. Bodies
are read in full before the application runs, with limits on size and time.
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
MAX_BODY_BYTES = 8 * 2**20 + 2**18
BODY_SECONDS = 20.0  # time limit for receiving a body
TICKET_SECONDS = 30.0  # lifetime of a ticket; a browser may start slowly
MAX_CONCURRENT_REQUESTS = 32
OPEN_PRINTED = "Open the URL printed in the terminal."
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff", "x-frame-options": "DENY", "cache-control": "no-store",
    "referrer-policy": "no-referrer", "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


class RequestRefused(Exception):
    """Exception for a rejected request, with its HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class AuthMiddleware:
    """ASGI middleware that forwards only authorized requests to the application."""

    def __init__(self, app: AsgiApp, token: str, port: int) -> None:
        self.app, self.token = app, token.encode()
        ends = ["", f":{port}"] if port == 80 else [f":{port}"]
        self.hosts = {f"{name}{end}" for name in ("127.0.0.1", "localhost") for end in ends}
        self.origins = {f"http://{host}" for host in self.hosts}
        self.active_requests = 0
        self.tickets: dict[bytes, float] = {}  # ticket -> expiry time

    def new_ticket(self) -> str:
        """Return a ticket for one use, since other users can see a browser's command line."""
        ticket = secrets.token_urlsafe(24)
        self.tickets[ticket.encode()] = time.monotonic() + TICKET_SECONDS
        return ticket

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send) if scope["type"] == "lifespan" else None
        if self.active_requests >= MAX_CONCURRENT_REQUESTS:
            return await send_refusal(send, RequestRefused(429, "too many requests; try again"))
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
        """Return the headers of an authorized request. Raise RequestRefused for other requests."""
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key = name.decode("latin-1").lower()
            if key in headers and key in ("host", "origin", "content-length", TOKEN_HEADER):
                raise RequestRefused(400, f"duplicate header {key}")
            headers[key] = value.decode("latin-1")
        if headers.get("host", "").lower() not in self.hosts:
            raise RequestRefused(403, "host: expected 127.0.0.1 or localhost")
        if "origin" in headers and headers["origin"].lower() not in self.origins:
            raise RequestRefused(403, "origin: expected this server's own page")
        site = headers.get("sec-fetch-site", "none")
        page = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
        if site not in ("none", "same-origin") and not page:
            raise RequestRefused(403, "sec-fetch-site: expected this server's own page")
        text = _query_token(scope["query_string"]) if page else headers.get(TOKEN_HEADER, "")
        token = text.encode("utf-8", "replace")
        if page and token in self.tickets:
            if time.monotonic() > self.tickets.pop(token):
                raise RequestRefused(403, f"This one-time link has expired. {OPEN_PRINTED}")
        elif not secrets.compare_digest(token, self.token):
            raise RequestRefused(403, f"Missing or wrong token. {OPEN_PRINTED}")
        if scope["method"] == "POST" and _content_type(headers) != "application/json":
            raise RequestRefused(415, "content-type: expected application/json")
        return headers


def _query_token(query: bytes) -> str:
    """Return the token in the query string of the page's address."""
    try:
        fields = parse_qs(query[:1_000].decode("latin-1"), max_num_fields=20)
    except ValueError:
        raise RequestRefused(400, "query: expected at most 20 fields") from None
    return fields.get("token", [""])[0]


def _content_type(headers: dict[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def _read_body(headers: dict[str, str], receive: Receive) -> bytes | None:
    """Return the body of a request, or None if the client disconnected."""
    too_large = RequestRefused(413, f"body: expected at most {MAX_BODY_BYTES:,} bytes")
    size = headers.get("content-length", "0")
    if size.isdecimal() and int(size[:20]) > MAX_BODY_BYTES:
        raise too_large
    body, end = bytearray(), asyncio.get_running_loop().time() + BODY_SECONDS
    while True:
        left = end - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, left))
        except asyncio.TimeoutError:
            raise RequestRefused(408, f"body: not received within {BODY_SECONDS:g} s") from None
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise too_large
        if not message.get("more_body"):
            return bytes(body)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` function that passes the body to the application."""
    sent = False

    async def read() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            return await receive()  # wait until the client disconnects
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", [])}
            own = {n.encode(): v.encode() for n, v in SECURITY_HEADERS.items()}
            missing = [(n, v) for n, v in own.items() if n not in names]
            message = {**message, "headers": [*message.get("headers", []), *missing]}
        await send(message)

    return sent


async def send_refusal(send: Send, refused: RequestRefused) -> None:
    """Send an error response and close the connection without reading the rest of the body."""
    body = refusal_body(refused.status, refused.reason)
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    start = {"type": "http.response.start", "status": refused.status}
    await _with_headers(send)(start | {"headers": [*kind, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})

"""Malformed, oversized and hostile requests: no 5xx, bounded memory, and the server still works."""

import json
import os
import random
import signal
import socket
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from cases import drawn
from glassformer.server.app import build_app
from glassformer.server.auth_middleware import MAX_BODY_BYTES, TOKEN_HEADER
from server.conftest import ADDER, GLASS, TAOTP
from server.test_jobs import start

MIB = 2**20
SCHEMA = schemathesis.openapi.from_dict(build_app(lambda: b"", None, None).openapi())
ALL, GENERATED, RAW = drawn(10_000), drawn(800), drawn(3_000)  # the others are mutated
LARGE, ROUNDS = 16, 3  # bodies of about 8 MiB in a round
# Memory of the server itself. GROWTH is since the first round: if bodies leaked, later rounds would
# leave twice as much. PEAK is since the start: parsing a body takes up to 35 times its size.
GROWTH, PEAK = LARGE * MAX_BODY_BYTES, 80 * MAX_BODY_BYTES

NASTY = [
    None, True, 0, -1, 1.5, 1e308, 10**400, "", "x", "\0", "\ud800", "\u202e", "é" * 50_000, [], {},
    [[]], [None] * 1_000, {"x": {}}, {str(i): i for i in range(50)}, "../../../../etc/passwd",
    "/etc/passwd", "/proc/self/environ", "file:///etc/passwd", "mine.py:NAME", "x.glass", "~",
    "lookup:table=/etc/passwd.csv", "<script>hacked=1</script>", "'; DROP TABLE models; --",
    "${7*7}", "{{7*7}}", "__import__('os').system('true')", "a" * 9_999,
    "addition:digits=" + "9" * 300,
    "hello-world:message=" + "\"" * 500, "lang/" * 500, "min:vocab=1000000", "%00", "\r\nX: y",
    ["a"] * 30_000, "(" * 5_000, "[" * 20_000, "-" * 20_000 + "1", "eye(1e9)", "x = " * 5_000,
]  # fmt: skip
BODIES = {
    "model": [{"ref": ADDER}, {"source": GLASS}, {"source": TAOTP, "kind": "taotp"},
              {"checkpoint": "AAAA"},
              {"ref": ADDER, "edits": [{"name": "embed.W_E", "index": [0, 0], "value": 1.0}]}],
    "verify": [{"ref": ADDER, "task": ADDER, "sample": 5, "exhaustive": False, "seed": 1}],
    "prove": [{"ref": ADDER, "task": "", "method": "auto", "seed": 0}],
    "train": [{"task": "no-such-task", "recipe": "fast", "seed": 0, "settings": {"steps": 1}}],
    "check": [{"level": "no-such-level", "text": "x"}],
}  # fmt: skip


LENGTHS = [
    "Content-Length: 5\r\n\r\nab", "Content-Length: -5\r\n\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFF\r\n",
    "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n",
]  # fmt: skip


@pytest.fixture(scope="module")
def hostile():
    """A server in its own process, to measure its memory."""
    # one heap for all threads, for reproducible sizes
    process = start(ADDER, "--minutes", "1", "--memory", "2", settings={"MALLOC_ARENA_MAX": "1"})
    info = json.loads(process.stdout.readline())
    base, token = info["address"].split("/?token=")
    yield base, token, info["port"], process.pid
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and errors == ""


def resident(pid, field="VmRSS"):
    """Return the resident bytes of a process, now (VmRSS) or at most (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(x.split()[1]) * 1024 for x in lines if x.startswith(field))


def changed(rng, value):
    """Return a body with a nasty value in one place, or instead of it."""
    if not value or rng.random() < 0.1 or not isinstance(value, (dict, list)):
        return rng.choice(NASTY)
    body = value.copy()
    keys = list(body) if isinstance(body, dict) else list(range(len(body)))
    key = rng.choice(keys)
    if isinstance(body, dict) and rng.random() < 0.2:
        body[str(rng.choice(NASTY))[:100]] = rng.choice(NASTY)
    elif isinstance(body, dict) and rng.random() < 0.1:
        del body[key]
    else:
        body[key] = changed(rng, body[key])
    return body


def generated(base, token, statuses):
    """Send schemathesis' valid and invalid requests for the schema."""
    operations = [result.ok() for result in SCHEMA.get_all_operations()]
    assert len(operations) == 8
    each = GENERATED // (2 * len(operations))
    session = httpx.Client(base_url=base, headers={TOKEN_HEADER: token}, timeout=120)
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @seed(0)
            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=each, database=None, deadline=None, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            def ask(case):
                try:
                    sent = case.as_transport_kwargs(base_url=base, headers={TOKEN_HEADER: token})
                    keys = ("method", "url", "params", "headers", "json")
                    sent = {k: sent[k] for k in keys if sent.get(k) is not None}
                    if "data" in case.as_transport_kwargs(base_url=base):
                        sent["content"] = str(case.body).encode("utf-8", "replace")
                    answer = session.request(**sent)
                except (ValueError, httpx.InvalidURL, UnicodeError, TypeError):
                    return  # what no client can send
                statuses[answer.status_code] += 1

            try:
                ask()
            except Exception as e:  # no invalid request exists
                if "Unsatisfiable" not in type(e).__name__:
                    raise
    session.close()


def mutated(base, token, statuses):
    """Send mutated bodies and headers of the page."""
    rng = random.Random(0)
    heads = [{}, {"origin": "http://evil.example"}, {"host": "evil.example"}, {TOKEN_HEADER: "x"},
             {"content-type": "text/plain"}, {"content-type": "application/json; charset=utf-16"},
             {"transfer-encoding": "chunked"}, {"content-encoding": "gzip"},
             {"sec-fetch-site": "cross-site"}, {"x-forwarded-host": "evil.example"},
             {"range": "bytes=0-1"}, {"expect": "100-continue"},
             {"accept": "x" * 5_000}]  # fmt: skip
    with httpx.Client(base_url=base, timeout=120) as client:
        for i in range(ALL - statuses.total()):
            kind = rng.choice(list(BODIES))
            body = changed(rng, rng.choice(BODIES[kind]))
            text = json.dumps(body).encode()
            if i % 7 == 0:  # not JSON any more
                at = rng.randrange(len(text) + 1)
                text = text[:at] + rng.randbytes(rng.randrange(8)) + text[at + rng.randrange(3) :]
            more = rng.choice(heads) if i % 5 == 0 else {}
            head = {"content-type": "application/json", TOKEN_HEADER: token} | more
            method = rng.choice(("GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "X"))
            method = method if i % 11 == 0 else "POST"
            try:
                answer = client.request(method, f"/api/{kind}", content=text, headers=head)
                statuses[answer.status_code] += 1
            except httpx.TransportError:  # refused before all of it was read
                statuses[0] += 1


def raw(port, statuses):
    """Send malformed bytes: partial requests, endless headers, missing bodies."""
    rng = random.Random(1)
    own = f"Host: 127.0.0.1:{port}\r\n"
    post = f"POST /api/model HTTP/1.1\r\n{own}"
    texts = [
        "", "\r\n\r\n", "GET", "GET / HTTP/1.1\r\n", f"GET / HTTP/1.1\r\n{own}", "\0" * 100,
        f"GET /{'a' * 100_000} HTTP/1.1\r\n{own}\r\n",
        f"GET / HTTP/1.1\r\n{'X: y' * 30_000}\r\n\r\n",
        *(post + rest for rest in LENGTHS),
        f"GET / HTTP/1.1\r\n{own}{own}\r\n", "GET / HTTP/1.0\r\n\r\n",
        f"GET / HTTP/2.0\r\n{own}\r\n", f"GET http://evil.example/ HTTP/1.1\r\n{own}\r\n",
        f"CONNECT evil.example:80 HTTP/1.1\r\n{own}\r\n",
        f"GET / HTTP/1.1\r\n{own}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        f"GET /..%2f..%2fetc/passwd HTTP/1.1\r\n{own}\r\n", f"GET /%00 HTTP/1.1\r\n{own}\r\n",
    ]  # fmt: skip
    for i in range(RAW):
        text = texts[i % len(texts)].encode() + (rng.randbytes(40) if i >= len(texts) else b"")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
            try:
                wire.sendall(text)
                wire.shutdown(socket.SHUT_WR)
                got = wire.recv(100)
            except OSError:  # it was cut off
                got = b""
        statuses[int(got.split()[1]) if got.startswith(b"HTTP/1.1 ") else 0] += 1


def large(base, token, statuses):
    """Send bodies at and beyond the size limit, with and without a declared length."""
    head = {"content-type": "application/json", TOKEN_HEADER: token}
    bodies = [
        b"[" + b"[]," * (MAX_BODY_BYTES // 3 - 10) + b"[]]",
        b'{"ref": "' + b"x" * (MAX_BODY_BYTES - 20) + b'"}',
        b"x" * (MAX_BODY_BYTES + 1),
        b'{"ref": "min", "edits": [' + b"{}," * (MAX_BODY_BYTES // 3 - 20) + b"{}]}",
        b"{" + b",".join(b'"%d": 0' % i for i in range(400_000)) + b"}",
        b"[" * (MAX_BODY_BYTES - 1),
        b'{"checkpoint": "' + b"A" * (MAX_BODY_BYTES - 40) + b'"}',
        b'{"ref": ' + b"9" * (MAX_BODY_BYTES - 20) + b"}",
    ]

    def piecemeal(body):
        yield from (body[i : i + 2**16] for i in range(0, len(body), 2**16))

    with httpx.Client(base_url=base, timeout=120) as client:
        for i in range(LARGE):
            body = bodies[i % len(bodies)]
            content = piecemeal(body) if i % 2 else body
            try:
                answer = client.post("/api/model", content=content, headers=head)
                statuses[answer.status_code] += 1
            except httpx.TransportError:  # refused before all of it was sent
                statuses[0] += 1


def announced(port, token):
    """Return the status for a declared oversized body before it is sent.

    A client that sends the body may lose the connection before it reads the answer.
    """
    lines = [
        "POST /api/model HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"{TOKEN_HEADER}: {token}",
        "Content-Type: application/json",
        f"Content-Length: {MAX_BODY_BYTES + 1}",
        "",
        "",
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        wire.sendall("\r\n".join(lines).encode())
        return int(wire.recv(100).split()[1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at memory in /proc")
def test_thousands_of_bad_requests(hostile):
    base, token, port, pid = hostile
    head = {TOKEN_HEADER: token}
    assert httpx.post(f"{base}/api/model", json={"ref": ADDER}, headers=head).status_code == 200
    first, statuses = resident(pid), Counter()
    attacks = {
        "large": large, "generated": generated, "raw": lambda *_: raw(port, statuses),
        **{f"large, round {i}": large for i in range(2, ROUNDS + 1)}, "mutated": mutated,
    }  # fmt: skip
    sizes = {}
    for name, attack in attacks.items():
        began, had = time.monotonic(), statuses.total()
        attack(base, token, statuses)
        took, sizes[name] = time.monotonic() - began, resident(pid)
        print(f"{name}: {statuses.total() - had:,} in {took:.0f} s, {sizes[name] / MIB:.0f} MiB")
    print(dict(sorted(statuses.items())), f"at most {resident(pid, 'VmHWM') / MIB:.0f} MiB")
    assert statuses.total() >= ALL
    assert not [status for status in statuses if status >= 500], statuses
    assert statuses[200] and statuses[403] and statuses[415] and statuses[422]
    assert announced(port, token) == 413
    assert max(sizes.values()) < sizes["large"] + GROWTH
    assert resident(pid, "VmHWM") < first + PEAK
    answer = httpx.post(f"{base}/api/model", json={"ref": ADDER}, headers=head, timeout=120)
    assert answer.status_code == 200 and answer.json()["ref"] == ADDER
    os.kill(pid, 0)

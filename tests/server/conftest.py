"""A running server in a thread of this process, with its worker processes."""

import os
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

from glassformer.server.auth_middleware import TOKEN_HEADER
from glassformer.server.server import StudioServer

ADDER = "addition:digits=1"
GLASS = "tokens = [*'ab']\nlength = 5\nemit = first(token, default='a')\n"
TAOTP = 'tokens: "ab"\nblock_size: 4\ntok_emb: [[1 -1] [-1 1]]\n'
PATIENCE = 300.0  # seconds that a job of a test may take: machines may be busy


class Served:
    """A running server, a client with its token, and one without."""

    def __init__(self, opened):
        self.open, self.base = opened, f"http://127.0.0.1:{opened.port}"
        self.client = httpx.Client(
            base_url=self.base, timeout=120, headers={TOKEN_HEADER: opened.token}
        )
        self.stranger = httpx.Client(base_url=self.base, timeout=120)

    def post(self, path, **body):
        return self.client.post(f"/api/{path}", json=body)

    def model(self, **body):
        answer = self.post("model", **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wrong(self, **body):
        """Return the error messages of a request for a model."""
        return "\n".join(e["message"] for e in self.model(**body)["errors"])

    def begin(self, kind, /, **body):
        answer = self.post(kind, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()["job"]

    def look(self, job, after=0):
        return self.client.get(f"/api/jobs/{job}", params={"after": after}).json()

    def finished(self, job, until=lambda told: told["state"] != "running"):
        end = time.monotonic() + PATIENCE
        while not until(told := self.look(job)):
            assert time.monotonic() < end, told
            time.sleep(0.05)
        return told

    def job(self, kind, /, **body):
        return self.finished(self.begin(kind, **body))


@contextmanager
def serving(refs=(ADDER,), **options):
    opened = StudioServer(list(refs), **options)
    thread = threading.Thread(target=opened.run)
    thread.start()
    while thread.is_alive() and not opened.server.started:
        time.sleep(0.01)
    assert thread.is_alive(), "the server ended before it started"
    served = Served(opened)
    try:
        yield served
    finally:
        opened.stop()
        thread.join()
        served.client.close()
        served.stranger.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a source, a text, a checkpoint, and links out of it."""
    import glassformer as gf

    folder = tmp_path_factory.mktemp("given")
    outside = tmp_path_factory.mktemp("outside")
    (folder / "mine.glass").write_text(GLASS)
    (folder / "mine.taotp").write_text(TAOTP)
    gf.save(gf.load(ADDER), folder / "mine.safetensors")
    (folder / "mine.py").write_text("raise SystemExit('was run')\n")
    (outside / "secret.glass").write_text("secret_name = 1\n")
    (outside / "secret.csv").write_text("a,b\nb,a\n")
    (outside / "secret.safetensors").write_bytes((folder / "mine.safetensors").read_bytes())
    os.symlink(outside / "secret.glass", folder / "link.glass")
    os.symlink(outside, folder / "way")
    return folder


@pytest.fixture(scope="module")
def served(folder):
    with serving(folders=[folder]) as result:
        yield result

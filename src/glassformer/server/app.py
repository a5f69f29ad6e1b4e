"""What the server answers: the page, models, and long work as jobs."""

import json
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ..puzzles.judge_process import SECONDS
from ..utils.worker_main import DEFECT, WRONG, dump
from ..utils.workers import Ended
from . import request_models
from .errors import refusal, wrong
from .jobs import Jobs
from .worker_pool import Busy, Pool

QUICK = 30.0  # seconds for what is answered at once
JUDGED = float(SECONDS)  # and for a puzzle, as `glassformer check` has it
PATIENCE = 5.0  # seconds to wait for a free process
BUSY = "this server is at work on as much as it may; wait for it, or stop a job"
RESPONSES: dict[int | str, dict[str, Any]] = {
         400: {"description": "not JSON"}, 403: {"description": "not from this page"},
         408: {"description": "too slow"}, 413: {"description": "too large"},
         415: {"description": "not called JSON"}, 422: {"description": "not what is expected"},
         429: {"description": "busy"}}  # fmt: skip
NO_JOB: dict[int | str, dict[str, Any]] = {404: {"description": "no such job"}}


class Json(Response):
    """JSON that is there already as bytes."""

    media_type = "application/json"


def application(page: Callable[[], bytes], pool: Pool, jobs: Jobs) -> FastAPI:
    """The application. auth_middleware.py stands before it."""
    app = FastAPI(
        title="glassformer open", docs_url=None, redoc_url=None, openapi_url=None,
        responses=RESPONSES, redirect_slashes=False,
    )  # fmt: skip

    def at_once(do: str, given: Any, room: str = "quick", seconds: float = QUICK) -> Response:
        """What a process answers now. What is wrong with a text that someone typed is an answer."""
        try:
            with pool.worker(room, PATIENCE) as worker:
                kind, data = worker.ask(do, given, seconds)
        except Busy:
            return problem(429, BUSY)
        except Ended as e:
            return Json(dump(wrong(f"{do} — {e}", "stopped")))
        if kind == WRONG:
            failed = json.loads(data)
            data = dump(wrong(failed["error"], failed["code"]))
        return Json(data, status_code=500 if kind == DEFECT else 200)

    def begun(do: str, given: request_models.Asked) -> Response:
        try:
            job = jobs.begin(do, given.model_dump())
        except Busy:
            return problem(429, BUSY)
        return Json(json.dumps({"job": job.id}))

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return Response(page(), media_type="text/html; charset=utf-8", headers={
            "content-security-policy": "frame-ancestors 'none'"})  # fmt: skip

    @app.get("/api/refs")
    def refs() -> Response:
        """All that can be named."""
        return at_once("refs", {})

    @app.post("/api/model")
    def model(given: request_models.Show) -> Response:
        """A model for the page, or what is wrong with its ref or its text, and where."""
        return at_once("model", given.model_dump())

    @app.post("/api/check")
    def check(given: request_models.Check) -> Response:
        """A solution of a puzzle, judged."""
        return at_once("check", given.model_dump(), "judge", JUDGED)

    @app.post("/api/verify")
    def verify(given: request_models.Verify) -> Response:
        """Begins to check a model on its whole domain, or on a sample."""
        return begun("verify", given)

    @app.post("/api/prove")
    def prove(given: request_models.Prove) -> Response:
        """Begins to prove a model."""
        return begun("prove", given)

    @app.post("/api/train")
    def train(given: request_models.Train) -> Response:
        """Begins to train a model."""
        return begun("train", given)

    @app.get("/api/jobs/{name}", responses=NO_JOB)
    def job(name: str, after: Annotated[int, Query(ge=0, le=10**9)] = 0) -> Response:
        """How a job stands."""
        found = jobs.all.get(name)
        return Json(found.to_json(after)) if found else gone()

    @app.delete("/api/jobs/{name}", responses=NO_JOB)
    def stop(name: str) -> Response:
        """Stops a job."""
        if not (found := jobs.all.get(name)):
            return gone()
        jobs.stop(found)
        return Json(json.dumps({"job": found.id}))

    @app.exception_handler(RequestValidationError)
    def not_expected(request: Request, error: RequestValidationError) -> Response:
        return problem(422, request_models.said(next(iter(error.errors()), {})))

    @app.exception_handler(HTTPException)
    def not_there(request: Request, error: HTTPException) -> Response:
        return problem(error.status_code, str(error.detail)[:200], error.headers)

    return app


def gone() -> Response:
    return problem(404, "there is no such job, or it is long over")


def problem(status: int, why: str, headers: Any = None) -> Response:
    return Json(refusal(status, why), status_code=status, headers=headers)

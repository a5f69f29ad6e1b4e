"""What the server answers: the page, models, and long work as jobs."""

import json
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ..puzzles.judge_process import DEFAULT_SECONDS
from ..utils.worker_main import DEFECT, WRONG, to_ascii_json
from ..utils.workers import ProcessEnded
from . import request_models
from .errors import error_payload, refusal_body
from .jobs import JobTable
from .worker_pool import PoolBusy, WorkerPool

QUICK_SECONDS = 30.0  # seconds for what is answered at once
JUDGE_SECONDS = float(DEFAULT_SECONDS)  # and for a puzzle, as `glassformer puzzle check` has it
FREE_WORKER_SECONDS = 5.0  # seconds to wait for a free process
BUSY_MESSAGE = "this server is at work on as much as it may; wait for it, or stop a job"
RESPONSES: dict[int | str, dict[str, Any]] = {
         400: {"description": "not JSON"}, 403: {"description": "not from this page"},
         408: {"description": "too slow"}, 413: {"description": "too large"},
         415: {"description": "not called JSON"}, 422: {"description": "not what is expected"},
         429: {"description": "busy"}}  # fmt: skip
JOB_RESPONSES: dict[int | str, dict[str, Any]] = {404: {"description": "no such job"}}


class JsonResponse(Response):
    """JSON that is there already as bytes."""

    media_type = "application/json"


def build_app(page: Callable[[], bytes], pool: WorkerPool, jobs: JobTable) -> FastAPI:
    """The application. auth_middleware.py stands before it."""
    app = FastAPI(
        title="glassformer studio", docs_url=None, redoc_url=None, openapi_url=None,
        responses=RESPONSES, redirect_slashes=False,
    )  # fmt: skip

    def at_once(
        do: str, given: Any, room: str = "quick", seconds: float = QUICK_SECONDS
    ) -> Response:
        """What a process answers now. What is wrong with a text that someone typed is an answer."""
        try:
            with pool.worker(room, FREE_WORKER_SECONDS) as worker:
                kind, data = worker.request(do, given, seconds)
        except PoolBusy:
            return error_response(429, BUSY_MESSAGE)
        except ProcessEnded as e:
            return JsonResponse(to_ascii_json(error_payload(f"{do} — {e}", "stopped")))
        if kind == WRONG:
            failed = json.loads(data)
            data = to_ascii_json(error_payload(failed["error"], failed["code"]))
        return JsonResponse(data, status_code=500 if kind == DEFECT else 200)

    def begun(do: str, given: request_models.RequestModel) -> Response:
        try:
            job = jobs.start(do, given.model_dump())
        except PoolBusy:
            return error_response(429, BUSY_MESSAGE)
        return JsonResponse(json.dumps({"job": job.id}))

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return Response(page(), media_type="text/html; charset=utf-8", headers={
            "content-security-policy": "frame-ancestors 'none'"})  # fmt: skip

    @app.get("/api/refs")
    def refs() -> Response:
        """All that can be named."""
        return at_once("refs", {})

    @app.post("/api/model")
    def model(given: request_models.ShowRequest) -> Response:
        """A model for the page, or what is wrong with its ref or its text, and where."""
        return at_once("model", given.model_dump())

    @app.post("/api/check")
    def check(given: request_models.CheckRequest) -> Response:
        """A solution of a puzzle, judged."""
        return at_once("check", given.model_dump(), "judge", JUDGE_SECONDS)

    @app.post("/api/verify")
    def verify(given: request_models.VerifyRequest) -> Response:
        """Begins to check a model on its whole domain, or on a sample."""
        return begun("verify", given)

    @app.post("/api/prove")
    def prove(given: request_models.ProveRequest) -> Response:
        """Begins to prove a model."""
        return begun("prove", given)

    @app.post("/api/train")
    def train(given: request_models.TrainRequest) -> Response:
        """Begins to train a model."""
        return begun("train", given)

    @app.get("/api/jobs/{name}", responses=JOB_RESPONSES)
    def job(name: str, after: Annotated[int, Query(ge=0, le=10**9)] = 0) -> Response:
        """How a job stands."""
        found = jobs.by_id.get(name)
        return JsonResponse(found.to_json(after)) if found else job_not_found()

    @app.delete("/api/jobs/{name}", responses=JOB_RESPONSES)
    def stop(name: str) -> Response:
        """Stops a job."""
        if not (found := jobs.by_id.get(name)):
            return job_not_found()
        jobs.stop(found)
        return JsonResponse(json.dumps({"job": found.id}))

    @app.exception_handler(RequestValidationError)
    def not_expected(request: Request, error: RequestValidationError) -> Response:
        return error_response(
            422, request_models.validation_message(next(iter(error.errors()), {}))
        )

    @app.exception_handler(HTTPException)
    def not_there(request: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail)[:200], error.headers)

    return app


def job_not_found() -> Response:
    return error_response(404, "there is no such job, or it is long over")


def error_response(status: int, message: str, headers: Any = None) -> Response:
    return JsonResponse(refusal_body(status, message), status_code=status, headers=headers)

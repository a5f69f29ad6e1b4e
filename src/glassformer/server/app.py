"""The routes of the server: the page, models, and jobs."""

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

JUDGE_SECONDS = float(DEFAULT_SECONDS)  # time limit of a puzzle, as in the command line
FREE_WORKER_SECONDS = 5.0  # time to wait for a free process
BUSY_MESSAGE = "the server is busy; wait, or stop a job"
RESPONSES: dict[int | str, dict[str, Any]] = {
         400: {"description": "not JSON"}, 403: {"description": "not from this page"},
         408: {"description": "too slow"}, 413: {"description": "too large"},
         415: {"description": "not application/json"}, 422: {"description": "invalid fields"},
         429: {"description": "busy"}}  # fmt: skip
JOB_RESPONSES: dict[int | str, dict[str, Any]] = {404: {"description": "no such job"}}


class JsonResponse(Response):
    """An HTTP response whose content is JSON bytes."""

    media_type = "application/json"


def build_app(page: Callable[[], bytes], pool: WorkerPool, jobs: JobTable) -> FastAPI:
    """Return the FastAPI application, to be wrapped by AuthMiddleware."""
    app = FastAPI(
        title="glassformer studio", docs_url=None, redoc_url=None, openapi_url=None,
        responses=RESPONSES, redirect_slashes=False,
    )  # fmt: skip

    def answer(do: str, body: Any, pool_name: str = "quick", seconds: float = 30.0) -> Response:
        """Run a request in a worker. Errors in user input are normal responses."""
        try:
            with pool.worker(pool_name, FREE_WORKER_SECONDS) as worker:
                kind, data = worker.request(do, body, seconds)
        except PoolBusy:
            return error_response(429, BUSY_MESSAGE)
        except ProcessEnded as e:
            return JsonResponse(to_ascii_json(error_payload(f"{do}: {e}", "stopped")))
        if kind == WRONG:
            failed = json.loads(data)
            data = to_ascii_json(error_payload(failed["error"], failed["code"]))
        return JsonResponse(data, status_code=500 if kind == DEFECT else 200)

    def start_job(do: str, body: request_models.RequestModel) -> Response:
        try:
            job = jobs.start(do, body.model_dump())
        except PoolBusy:
            return error_response(429, BUSY_MESSAGE)
        return JsonResponse(json.dumps({"job": job.id}))

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return Response(page(), media_type="text/html; charset=utf-8", headers={
            "content-security-policy": "frame-ancestors 'none'"})  # fmt: skip

    @app.get("/api/refs")
    def refs() -> Response:
        """List all refs that the page may use."""
        return answer("refs", {})

    @app.post("/api/model")
    def model(body: request_models.ShowRequest) -> Response:
        """Return a model for the page, or the errors in its ref or source."""
        return answer("model", body.model_dump())

    @app.post("/api/check")
    def check(body: request_models.PuzzleCheckRequest) -> Response:
        """Judge the solution of a puzzle."""
        return answer("check", body.model_dump(), "judge", JUDGE_SECONDS)

    @app.post("/api/verify")
    def verify(body: request_models.VerifyRequest) -> Response:
        """Start a job that verifies a model."""
        return start_job("verify", body)

    @app.post("/api/prove")
    def prove(body: request_models.ProveRequest) -> Response:
        """Start a job that proves a model."""
        return start_job("prove", body)

    @app.post("/api/train")
    def train(body: request_models.TrainRequest) -> Response:
        """Start a job that trains a model."""
        return start_job("train", body)

    @app.get("/api/jobs/{name}", responses=JOB_RESPONSES)
    def job(name: str, after: Annotated[int, Query(ge=0, le=10**9)] = 0) -> Response:
        """Return the status of a job."""
        job_ = jobs.by_id.get(name)
        return JsonResponse(job_.to_json(after)) if job_ else job_not_found()

    @app.delete("/api/jobs/{name}", responses=JOB_RESPONSES)
    def stop(name: str) -> Response:
        """Stop a job."""
        if not (job_ := jobs.by_id.get(name)):
            return job_not_found()
        jobs.stop(job_)
        return JsonResponse(json.dumps({"job": job_.id}))

    @app.exception_handler(RequestValidationError)
    def invalid_request(request: Request, error: RequestValidationError) -> Response:
        message = request_models.validation_message(next(iter(error.errors()), {}))
        return error_response(422, message)

    @app.exception_handler(HTTPException)
    def http_error(request: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail)[:200], error.headers)

    return app


def job_not_found() -> Response:
    return error_response(404, "no such job, or it ended long ago")


def error_response(status: int, message: str, headers: Any = None) -> Response:
    return JsonResponse(refusal_body(status, message), status_code=status, headers=headers)

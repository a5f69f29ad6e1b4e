"""Conversion of errors to JSON for the page, with lines and columns in a source."""

import json
import re
from typing import Any

SOURCE_NAME = "source"  # file name of the page's source in error messages
NUMBER = r"(?::(\d{1,9}))?"
SOURCE_LOCATION = re.compile(rf"{SOURCE_NAME}{NUMBER}{NUMBER}(?: —|:) (.*)", re.DOTALL)
STATUS_CODES = {  # HTTP status -> error code
    403: "forbidden", 404: "not_found", 408: "too_slow", 413: "too_large", 429: "busy",
}  # fmt: skip


def refusal_body(status: int, message: str) -> bytes:
    """Return the JSON body of the response to a rejected request."""
    return json.dumps({"error": message, "code": STATUS_CODES.get(status, "bad_argument")}).encode()


def error_payload(message: str, code: str) -> dict[str, Any]:
    """Return an error as data for the page: by line of the message, and in one line.

    `code` is one of utils.errors.CODES, "stopped" or "defect".
    """
    problem = "; ".join(message.split("\n"))
    return {"errors": split_locations(message), "problem": problem, "code": code}


def split_locations(message: str) -> list[dict[str, Any]]:
    """Return {line, column, message} for each line of a message."""
    locations = []
    for text in message.split("\n"):
        match = SOURCE_LOCATION.fullmatch(text)
        line, column, reason = match.groups() if match else (None, None, text)
        place = {"line": line and int(line), "column": column and int(column)}
        locations.append(place | {"message": reason})
    return locations

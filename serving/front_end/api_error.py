"""Errors in OpenAI's form: ``{"error": {"message", "type", "param", "code"}}`` and a status.

https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

import re

import msgspec

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
_TYPES = {
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "str": "a string",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_WRONG_TYPE = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<got>[^`]+)`")
_OUT_OF_RANGE = re.compile(r"Expected `[^`]+` (?P<bound>[<>]=? \S+)")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]+)`")
_AT = re.compile(r" - at `\$\.(?P<path>[^`]+)`$")


class ApiError(Exception):
    """An answer that is an error. ``param`` names the field of the request."""

    def __init__(
        self, message: str, status: int = 400, kind: str = INVALID_REQUEST, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code

    def body(self) -> bytes:
        """The answer's JSON."""
        fields = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": fields})


def unreadable(error: Exception) -> ApiError:
    """The error of a body that ``msgspec`` could not read."""
    if not isinstance(error, msgspec.ValidationError):
        return ApiError(f"We could not parse the JSON body of your request: {error}")
    text = str(error)
    at = _AT.search(text)
    path = at["path"] if at else None
    if unknown := _UNKNOWN.search(text):
        name = f"{path}.{unknown['name']}" if path else unknown["name"]
        return ApiError(f"Unrecognized request argument supplied: {name}", param=name)
    if missing := _MISSING.search(text):
        name = f"{path}.{missing['name']}" if path else missing["name"]
        return ApiError(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    if wrong := _WRONG_TYPE.search(text):
        expected = " or ".join(_TYPES.get(kind, kind) for kind in wrong["expected"].split(" | "))
        got = _TYPES.get(wrong["got"], wrong["got"])
        where = f"Invalid type for '{path}'" if path else "Invalid body"
        return ApiError(f"{where}: expected {expected}, but got {got} instead.", param=path, code="invalid_type")
    if bounded := _OUT_OF_RANGE.search(text):
        return ApiError(f"Invalid '{path}': expected a value {bounded['bound']}.", param=path, code="invalid_value")
    return ApiError(f"Invalid '{path}': {text.removesuffix(at[0] if at else '')}.", param=path, code="invalid_value")

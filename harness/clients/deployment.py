"""What a server says of itself, as far as a run records it, and of a server of OpenAI's protocol the reading of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from bench_records.manifest import Deployment, Document
from harness.clients.openai_server import authorization, models_path
from harness.clients.transport.http_get import GetError, get_json
from harness.clients.transport.url import Origin
from harness.errors import TargetError

_MOST_MODELS = 100
_MOST_BYTES = 1 << 20  # of all models: they are a part of run.json
_LONGEST = 2_000  # characters of a text from an HTTP server
_LARGEST = 1 << 53
_OF_THE_ANSWER = ("created", "object", "permission")  # they are new in each answer, or say nothing of the model
_VERSION_PATH = "/version"  # vLLM's, SGLang's and trtllm-serve's


def within_bounds(models: Mapping[str, Document]) -> dict[str, Document]:
    """The first models by name, as many as a run records."""
    kept: dict[str, Document] = {}
    left = _MOST_BYTES
    for name, config in sorted(models.items())[:_MOST_MODELS]:
        left -= len(name) + len(msgspec.json.encode(config))
        if left < 0:
            break
        kept[name] = config
    return kept


def openai_deployment(origin: Origin, path: str, headers: Mapping[str, str], timeout_s: float) -> Deployment | None:
    """The version and the list of models of the server at ``origin``; None where it says neither. ``path`` is that of the
    requests. Both are asked within ``timeout_s``.
    """
    end_s = time.monotonic() + timeout_s

    def ask(where: str) -> Any:
        with suppress(GetError, TargetError):
            return get_json(origin, where, {**authorization(), **headers}, max(0.01, end_s - time.monotonic()))
        return None

    version, models = _version(ask(_VERSION_PATH)), _models(ask(models_path(path)))
    return None if version is None and models is None else Deployment(version=version, models=models)


def _version(answer: Any) -> str | None:
    version = answer.get("version") if isinstance(answer, dict) else None
    return version[:_LONGEST] if isinstance(version, str) else None


def _models(answer: Any) -> dict[str, Document] | None:
    """The entries of the list by their ids, without what is not a plain value."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return None
    entries = [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return within_bounds({entry["id"][:_LONGEST]: _plain(entry) for entry in entries})


def _plain(entry: Mapping[str, Any]) -> Document:
    kept: dict[str, object] = {}
    for name, value in entry.items():
        if name in _OF_THE_ANSWER:
            continue
        if isinstance(value, str):
            kept[name[:_LONGEST]] = value[:_LONGEST]
        elif isinstance(value, bool | int | float) and abs(value) <= _LARGEST:
            kept[name[:_LONGEST]] = value
    return kept

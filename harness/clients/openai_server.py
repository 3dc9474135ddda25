"""What OpenAI's protocols share apart from requests: the paths of a server, the models that it lists, the user's key."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from harness.clients.transport.http_get import GetError, HttpStatusError, get_json
from harness.clients.transport.url import Origin
from harness.errors import TargetError

CHAT = "/chat/completions"  # below the base path, as COMPLETIONS is
COMPLETIONS = "/completions"
RESPONSES = "/responses"
VLLM_TOKENS = "/inference/v1/generate"  # beside the base path, not below it
BASE = "/v1"
API_KEY_VARIABLE = "OPENAI_API_KEY"
_SHOWN_MODELS = 20
_LONGEST_NAME = 200  # characters of a model's name in a message


def base_of(path: str) -> str | None:
    """The base path (``/v1``) of the ``path`` of a protocol's requests; None of a path that is the user's own."""
    if path.endswith(VLLM_TOKENS):
        return path.removesuffix(VLLM_TOKENS) + BASE
    endpoint = next((name for name in (CHAT, COMPLETIONS, RESPONSES) if path.endswith(name)), None)
    return None if endpoint is None else path.removesuffix(endpoint)


def models_path(path: str) -> str:
    """The path of the list of models beside the ``path`` of requests."""
    base = base_of(path)
    return f"{BASE if base is None else base}/models"


def served_models(origin: Origin, path: str, headers: Mapping[str, str], timeout_s: float = 10.0) -> tuple[str, ...] | None:
    """The names of the models that the server lists; None where it lists none. ``path`` is that of the requests.

    Raises TargetError where no server answers, or the key is refused.
    """
    try:
        listed = get_json(origin, models_path(path), {**authorization(), **headers}, timeout_s)
    except HttpStatusError as error:
        if error.status in (401, 403):
            problem = f"the server refused access ({error.message}); is its key in the environment variable {API_KEY_VARIABLE}?"
            raise TargetError(f"--url {origin}: {problem}") from error
        return None
    try:
        return tuple(model.id for model in msgspec.convert(listed, _Models).data)
    except msgspec.ValidationError:
        return None


def models_owner(origin: Origin, path: str, headers: Mapping[str, str], timeout_s: float) -> str | None:
    """Whose the first listed model is, which names the kind of server: "vllm", "tensorrt_llm", and Dynamo's "nvidia"."""
    try:
        listed = get_json(origin, models_path(path), {**authorization(), **headers}, timeout_s)
        return next((model.owned_by for model in msgspec.convert(listed, _OwnedModels).data), None)
    except (GetError, msgspec.ValidationError):
        return None


def choose_model(requested: str | None, served: tuple[str, ...] | None) -> str:
    """The model to drive: the requested one, listed or not, or the server's only one. Raises TargetError without either."""
    if requested is None:
        if served is not None and len(served) == 1:
            return served[0]
        raise TargetError(
            f"--model: name the model; the server has {_listed(served)}"
            if served
            else "--model: name the model; the server lists none, as /v1/models would"
        )
    return requested


def unlisted_model(requested: str, served: tuple[str, ...] | None) -> str | None:
    """That the server does not list the model; None where it does, or has no list. Routers and servers that load a model on
    request serve models that they do not list.
    """
    if served is None or requested in served:
        return None
    has = _listed(served) or "none"
    return f"the server does not list {requested} in /v1/models, which has {has}; it is used all the same"


def api_key() -> str:
    """The user's key, which is read from the environment alone and never written to a file; "" without one."""
    return os.environ.get(API_KEY_VARIABLE, "").strip()


def authorization() -> dict[str, str]:
    """The header with the user's key."""
    key = api_key()
    return {"authorization": f"Bearer {key}"} if key else {}


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(name[:_LONGEST_NAME] for name in names[:_SHOWN_MODELS]) + (
        f" and {len(names) - _SHOWN_MODELS} more" if len(names) > _SHOWN_MODELS else ""
    )


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class _Owned(msgspec.Struct):
    owned_by: str | None = None


class _OwnedModels(msgspec.Struct):
    data: list[_Owned]

"""The first request to a core model: a proof that it receives the token ids that are sent.

Triton's Python backend reads tensors through the NumPy of the models' environment; with NumPy 2 it reads [1, 2] as [1, 1].
"""

from __future__ import annotations

import http.client
import json

from serving.errors import LaunchError
from serving.launch.addresses import EVERY_ADDRESS, LOOPBACK, ServerAddresses

_SENT = [1, 2, 3]
_TIMEOUT_S = 120.0
_EVENT = "data: "
_JSON = {"Content-Type": "application/json"}


def check_token_ids(addresses: ServerAddresses, model: str) -> None:
    """Send ids to the core model ``model``, which repeats the prompt it received. Raises LaunchError where it is another."""
    body = {"input_ids": _SENT, "input_lengths": len(_SENT), "request_output_len": 1, "exclude_input_in_output": False}
    host = LOOPBACK if addresses.host == EVERY_ADDRESS else addresses.host
    connection = http.client.HTTPConnection(host, addresses.http_port, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps(body), _JSON)
        answer = connection.getresponse().read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise LaunchError(f"{model} did not answer its first request: {error!r}") from error
    finally:
        connection.close()
    received = _prompt(answer)
    if received != _SENT:
        shown = f"received the token ids {received}" if received is not None else f"answered {answer.strip()[:200]!r}"
        raise LaunchError(f"{model} {shown} where {_SENT} were sent; the models' environment needs numpy<2")


def _prompt(answer: str) -> list[int] | None:
    """The prompt in an answer of server-sent events; None where it has none."""
    event = next((line.removeprefix(_EVENT) for line in answer.splitlines() if line.startswith(_EVENT)), "null")
    try:
        content = json.loads(event)
    except ValueError:
        return None
    output_ids = content.get("output_ids") if isinstance(content, dict) else None
    return output_ids[: len(_SENT)] if isinstance(output_ids, list) else None

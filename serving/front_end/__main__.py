"""The front end's process, a child of the server's supervisor.

    python -m serving.front_end SETTINGS_JSON

On SIGINT, which the server gets with it, it takes no more requests, and goes on with those in flight. It ends on SIGTERM, or
with status 1 and a sentence where it cannot listen or has no tokenizer.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import signal
import sys
from pathlib import Path

import grpc.aio
import uvloop
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

from serving.front_end.core_client import CoreClient
from serving.front_end.core_events import CoreEvents
from serving.front_end.prompts import PromptReader, open_prompt_reader
from serving.front_end.service import OpenAIService, Vocabulary
from serving.front_end.settings import PROCESS_NAME, FrontEndSettings, read_settings
from serving.proxy.short_log import ShortLog
from serving.text.detokenization import special_token_ids

_PR_SET_NAME = 15
_CONNECT_S = 10.0
_UNBOUNDED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0))


def main() -> int:
    settings = read_settings(sys.argv[1])
    logging.basicConfig(handlers=[ShortLog()])
    ctypes.CDLL(None).prctl(_PR_SET_NAME, PROCESS_NAME.encode(), 0, 0, 0)
    try:
        reader = open_prompt_reader(Path(settings.tokenizer_dir))
        uvloop.run(_serve(settings, reader))
    except (OSError, ValueError) as error:
        print(f"The OpenAI front end cannot start: {error}", file=sys.stderr)  # noqa: T201  to the log
        return 1
    return 0


async def _serve(settings: FrontEndSettings, reader: PromptReader) -> None:
    """Serve until SIGTERM."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    async with (
        grpc.aio.insecure_channel(settings.server, _UNBOUNDED) as channel,
        _open_session() as session,
    ):
        core = CoreClient(channel, settings.core_model, CoreEvents(session, settings.http, settings.core_model))
        service = OpenAIService(settings, reader, _vocabulary(reader, Path(settings.tokenizer_dir)), core, session)
        loop.add_signal_handler(signal.SIGINT, service.refuse_requests)
        loop.add_signal_handler(signal.SIGTERM, ended.set)
        runner = web.AppRunner(
            service.application(),
            handler_cancellation=True,  # a client that leaves ends its request at the engine
            access_log=None,
            keepalive_timeout=settings.receive_timeout_s,
            shutdown_timeout=0.1,
        )
        await runner.setup()
        await web.TCPSite(runner, settings.host, settings.port, backlog=1024).start()
        await ended.wait()
        await runner.cleanup()


def _open_session() -> ClientSession:
    """Connections to Triton, one a request: at its end it waits for idle ones."""
    return ClientSession(
        connector=TCPConnector(limit=0, force_close=True),
        timeout=ClientTimeout(total=None, sock_connect=_CONNECT_S),  # an answer may take as long as the model does
        cookie_jar=DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
    )


def _vocabulary(reader: PromptReader, tokenizer_dir: Path) -> Vocabulary:
    special = getattr(reader.tokenizer, "all_special_ids", None)
    ends = dict.fromkeys(id_ for id_ in (reader.tokenizer.eos_token_id, *_generation_ends(tokenizer_dir)) if id_ is not None)
    return Vocabulary(special_token_ids(tokenizer_dir) if special is None else frozenset(special), tuple(ends))


def _generation_ends(tokenizer_dir: Path) -> list[int]:
    """The ids of ``generation_config.json`` that end a sequence: models for chats have several."""
    path = tokenizer_dir / "generation_config.json"
    if not path.is_file():
        return []
    ends = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    return [id_ for id_ in (ends if isinstance(ends, list) else [ends]) if isinstance(id_, int)]


if __name__ == "__main__":
    sys.exit(main())

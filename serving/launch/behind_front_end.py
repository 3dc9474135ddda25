"""A plan whose server has the OpenAI front end before it."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from serving.engines import read_context_tokens
from serving.errors import LaunchError
from serving.front_end.settings import FrontEndSettings
from serving.launch.addresses import EVERY_ADDRESS, LOOPBACK, ServerAddresses
from serving.launch.plan import LaunchPlan
from serving.repository.pipeline import CORE_MODEL_NAME, RepositorySpec


def with_front_end(
    plan: LaunchPlan,
    inner: ServerAddresses,
    spec: RepositorySpec,
    model: str | None = None,
    allowed_hosts: tuple[str, ...] = (),
) -> LaunchPlan:
    """``plan`` with a front end at the ``openai_port`` of its addresses, before the server at ``inner``.

    ``model`` None: the name of the engine's folder. Raises LaunchError for models that cannot stream, and without aiohttp.
    """
    addresses = plan.addresses
    assert addresses.openai_port is not None
    if not spec.decoupled_mode:
        raise LaunchError("--no_decoupled_mode: the OpenAI front end streams, which needs decoupled models")
    if find_spec("aiohttp") is None:
        raise LaunchError("the OpenAI front end needs aiohttp; install it with: pip install 'inflight-bench[proxy]'")
    host = LOOPBACK if inner.host == EVERY_ADDRESS else inner.host
    settings = FrontEndSettings(
        host=addresses.host,
        port=addresses.openai_port,
        server=f"{host}:{inner.grpc_port}",
        http=f"http://{host}:{inner.http_port}",
        metrics=f"http://{host}:{inner.metrics_port}/metrics",
        model=model or spec.engine_dir.name,
        tokenizer_dir=str(spec.tokenizer_dir),
        context_tokens=read_context_tokens(spec.engine, spec.engine_dir, spec.engine_options),
        core_model=CORE_MODEL_NAME,
        allowed_hosts=allowed_hosts,
    )
    return replace(plan, front_end=settings)

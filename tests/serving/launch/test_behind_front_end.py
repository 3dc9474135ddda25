"""Plans whose server has the OpenAI front end before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.errors import LaunchError
from serving.launch import behind_front_end
from serving.launch.addresses import ServerAddresses
from serving.launch.behind_front_end import with_front_end
from serving.launch.behind_proxy import with_proxy
from serving.launch.plan import LaunchPlan, commands_beside
from serving.proxy.settings import ProxyBounds
from serving.repository.pipeline import RepositorySpec

_PUBLIC = ServerAddresses("10.0.0.1", 8000, 8001, 8002, openai_port=9000)
_INNER = ServerAddresses("127.0.0.1", 7000, 7001, 7002)
_SPEC = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR)
_PLAN = LaunchPlan(("tritonserver",), _PUBLIC, "/repository", ("ensemble",), "log")


def test_front_end_listens_where_the_plan_does_and_asks_the_server_itself() -> None:
    proxied = with_proxy(replace(_PLAN, addresses=_INNER), _PUBLIC, ProxyBounds())
    plan = with_front_end(proxied, _INNER, _SPEC, allowed_hosts=("gpu1.example",))
    settings = plan.front_end
    assert settings is not None
    assert (settings.host, settings.port, settings.server) == ("10.0.0.1", 9000, "127.0.0.1:7001")
    assert settings.metrics == "http://127.0.0.1:7002/metrics"
    assert (settings.model, settings.context_tokens, settings.allowed_hosts) == ("demo_engine", 4096, ("gpu1.example",))
    assert list(commands_beside(plan)) == ["The proxy", "The OpenAI front end"]


def test_server_on_every_address_is_asked_on_loopback() -> None:
    plan = with_front_end(_PLAN, replace(_PUBLIC, host="0.0.0.0"), _SPEC, "mine")
    assert plan.front_end is not None
    assert (plan.front_end.server, plan.front_end.model) == ("127.0.0.1:8001", "mine")


def test_models_that_cannot_stream_have_no_front_end() -> None:
    with pytest.raises(LaunchError, match="--no_decoupled_mode: the OpenAI front end streams"):
        with_front_end(_PLAN, _INNER, replace(_SPEC, decoupled_mode=False))


def test_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind_front_end, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"the OpenAI front end needs aiohttp; .*pip install 'inflight-bench\[proxy\]'"):
        with_front_end(_PLAN, _INNER, _SPEC)

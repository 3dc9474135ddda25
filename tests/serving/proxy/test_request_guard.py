"""Which requests the proxy refuses by their headers Host, Origin and Sec-Fetch-Site."""

from __future__ import annotations

import pytest

from serving.proxy.request_guard import refusal

_OWN = ("gpu1.example",)


@pytest.mark.parametrize(
    "host",
    [None, "127.0.0.1:8000", "10.0.0.7", "[::1]:8000", "localhost:8000", "triton:8000", "gpu1.example:8000", "GPU1.example"],
)
def test_programs_and_own_names_pass(host: str | None) -> None:
    assert refusal(host, None, None, _OWN) is None
    assert refusal(host, None, "none", _OWN) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "gpu1.example.evil.example:8000", "127.0.0.1.evil.example", "", ":8000", "[::1", "10.0.0.7."]
)
def test_name_that_another_sites_owner_chose_is_refused(host: str) -> None:
    assert "--allowed_hosts" in str(refusal(host, None, None, _OWN))


@pytest.mark.parametrize(
    ("origin", "site"),
    [
        ("http://evil.example", None),
        ("null", None),
        ("http://10.0.0.7:9000", "same-site"),
        ("https://10.0.0.7:8000", None),
        (None, "cross-site"),
        (None, "same-site"),
    ],
)
def test_web_page_of_another_origin_is_refused(origin: str | None, site: str | None) -> None:
    assert "web page" in str(refusal("10.0.0.7:8000", origin, site, _OWN))


def test_page_of_the_own_origin_passes() -> None:
    assert refusal("10.0.0.7:8000", "http://10.0.0.7:8000", "same-origin", _OWN) is None

"""Addresses of servers: what the parser accepts, and the errors for the rest."""

from __future__ import annotations

import pytest

from harness.clients.transport.url import HttpUrl, Origin, parse_origin, parse_url, separate_urls


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("host", "http://host:80/metrics"),
        ("host:8002", "http://host:8002/metrics"),
        ("http://host:1/prometheus/metrics", "http://host:1/prometheus/metrics"),
        ("http://host:1/", "http://host:1/metrics"),
        ("https://host", "https://host:443/metrics"),
        ("http://[::1]:5/m?a=b", "http://[::1]:5/m?a=b"),
    ],
)
def test_urls(written: str, read: str) -> None:
    assert str(parse_url(written, "/metrics")) == read


@pytest.mark.parametrize(
    "url",
    ["", "ftp://host/x", "grpc://host:1", "http://", "http://host:70000", "http://u:p@host", "host:x", "host:0", "host:"],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_url(url, "/metrics")


def test_scheme_and_port_of_an_origin_have_defaults() -> None:
    ports = {"http": 8000, "https": 443}
    assert parse_origin("host", ports) == Origin("http", "host", 8000)
    assert parse_origin("https://host/", ports) == Origin("https", "host", 443)
    assert parse_origin("[::1]:9", {"grpc": 8001}) == Origin("grpc", "::1", 9)


@pytest.mark.parametrize("text", ["host/v1", "host?a=b", "grpc://host", "host#a", "host:²", ":8001", "[::1]:"])
def test_what_is_no_origin(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_origin(text, {"http": 8000})


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a:1", ["a:1"]),
        ("a:1, b:2,c", ["a:1", "b:2", "c"]),
        ("http://a,https://b:2/v1,http://c", ["http://a", "https://b:2/v1", "http://c"]),
        ("a:1/v1,b:2/v1", ["a:1/v1", "b:2/v1"]),
        ("[::1]:1/v1,[::2]:2", ["[::1]:1/v1", "[::2]:2"]),
        ("http://a/v1?tags=x,y", ["http://a/v1?tags=x,y"]),
        ("http://a/x,y/v1,http://b/x,y/v1", ["http://a/x,y/v1", "http://b/x,y/v1"]),
        ("http://user:pass,word@a:1", ["http://user:pass,word@a:1"]),
        ("http://user:a,b,c@a:1,http://b", ["http://user:a,b,c@a:1", "http://b"]),
        ("http://a/v1,", ["http://a/v1", ""]),
    ],
)
def test_a_comma_separates_addresses_and_may_be_part_of_one(written: str, read: list[str]) -> None:
    assert list(separate_urls(written)) == read


def test_an_origin_and_its_urls() -> None:
    origin = Origin("https", "::1", 8443)
    assert (str(origin), origin.address, origin.authority) == ("https://[::1]:8443", "[::1]:8443", "[::1]:8443")
    assert Origin("http", "host", 80).authority == "host"
    assert origin.url("/m") == HttpUrl("https", "::1", 8443, "/m")
    assert origin.url("/m").origin == origin

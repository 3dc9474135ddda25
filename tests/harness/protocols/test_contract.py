"""What holds of every protocol in the list."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from harness.protocols.listed import PROTOCOLS


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_has_the_name_by_which_it_is_listed_and_an_address_that_is_shown(name: str) -> None:
    protocol = PROTOCOLS[name].load()
    assert protocol.name == name
    assert protocol.shown(protocol.address("host:1", None)).removeprefix("http://").startswith("host:1")


def test_clients_are_values_with_tags_that_differ() -> None:
    clients = [protocol.load().client_type for protocol in PROTOCOLS.values()]
    assert all(issubclass(client, msgspec.Struct) and client.__struct_config__.frozen for client in clients)
    assert len({client.__struct_config__.tag for client in clients}) == len(clients)  # type: ignore[attr-defined]


def test_the_list_imports_no_transport() -> None:
    script = "import sys; from harness.protocols.listed import PROTOCOLS; assert not {'grpc', 'httptools'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)

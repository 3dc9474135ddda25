from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.openai_completions import OpenAICompletionsClient
from harness.clients.transport.url import Origin
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http import TritonHttpClient
from harness.clients.triton.model import TritonModel
from harness.errors import JournalError
from harness.journal.frames import framed
from harness.recording.schedule_file import RecordingBasis, read_basis, write_basis
from harness.recording.schedule_summary import summarise_schedule
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule

_MODEL = TritonModel("ensemble", True, frozenset({"text_input", "stream"}), frozenset({"text_output"}), (("a", "b"),))


def _basis(requests: int = 2, prompt_tokens: int = 3) -> RecordingBasis:
    schedule = Schedule(
        tuple(Request(20, None, tuple(range(index, index + prompt_tokens)), prompt_tokens) for index in range(requests)),
        tuple(2_000_000_000 * index for index in range(requests)),
        seed=3,
    )
    client = TritonGrpcClient("[::1]:8001", _MODEL, streaming=True, end_id=2)
    return RecordingBasis("1" * 32, summarise_schedule(schedule), client, workers=2, tokenizer_dir="/models/llama")


def test_what_is_written_is_read_and_its_client_decodes(tmp_path: Path) -> None:
    path, basis = tmp_path / "schedule.bin", _basis()
    write_basis(basis, path)
    again = read_basis(path)
    assert again == basis
    assert again.client.decode(b"").token_ids is None
    assert list(tmp_path.iterdir()) == [path]


def test_secrets_that_only_sending_needs_are_not_written(tmp_path: Path) -> None:
    path, origin = tmp_path / "schedule.bin", Origin("https", "example", 443)
    headers = {"authorization": "Bearer hidden"}
    for client in (
        TritonHttpClient(origin, _MODEL, True, headers=headers),
        OpenAIChatClient(origin, "llama", headers=headers, extra={"user": "hidden"}),
        OpenAICompletionsClient(origin, "llama", headers=headers, extra={"user": "hidden"}, token_ids=True),
    ):
        write_basis(replace(_basis(), client=client), path)
        assert b"hidden" not in path.read_bytes()
        again = read_basis(path).client
        assert type(again) is type(client)
        assert again.decode(b'{"error": "full"}').error is not None


def test_size_does_not_grow_with_the_prompts(tmp_path: Path) -> None:
    sizes = []
    for prompt_tokens in (100, 1_000):
        write_basis(_basis(1_000, prompt_tokens), tmp_path / "schedule.bin")
        sizes.append((tmp_path / "schedule.bin").stat().st_size)
    assert sizes[1] <= sizes[0] + 4_000  # a longer number for a longer length
    assert sizes[1] < 45_000


_NOT_DECODED = "without it the journals cannot be decoded"


def test_damage_at_any_byte_is_seen_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "schedule.bin"
    write_basis(_basis(), path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        for damaged in (whole[:position], whole[:position] + bytes([whole[position] ^ 0x11]) + whole[position + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(JournalError, match=r"schedule\.bin"):
                read_basis(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(JournalError, match=rf"^{path} is damaged: its checksum does not match; {_NOT_DECODED}$"):
        read_basis(path)


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=rf"schedule\.bin cannot be read \(No such file or directory\); {_NOT_DECODED}$"):
        read_basis(tmp_path / "schedule.bin")


def test_schedule_of_another_version_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "schedule.bin"
    path.write_bytes(b"inflight-bench schedule 1\n" + bytes(40))
    with pytest.raises(
        JournalError, match=f"^{path} was written by another version of bench: recover the run with that version$"
    ):
        read_basis(path)


def test_a_schedule_of_another_form_is_refused_by_name(tmp_path: Path) -> None:
    """Whole, with a right checksum, and not what this version writes."""
    path = tmp_path / "schedule.bin"
    path.write_bytes(b"inflight-bench schedule 3\n" + framed(msgspec.msgpack.encode({"workers": "many"})))
    with pytest.raises(
        JournalError, match=rf"^{path} cannot be read by this version of bench: Expected `int`, got `str` - at `\$.workers`"
    ):
        read_basis(path)

"""Datasets of any format, and requests from their rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workloads.dataset import DatasetWorkload, read_dataset
from workloads.errors import DatasetError, WorkloadError
from workloads.request import LengthLimits
from workloads.rows import PromptRow

ReadBytes = Callable[[bytes], list[PromptRow]]

_UPSTREAM = [{"input": "a", "instruction": "b", "output": "c d"}, {"input": "e", "instruction": "f", "output": "g"}]
_SHAREGPT = [{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello you"}]}]


@pytest.fixture(scope="session")
def read_bytes(tmp_path_factory: pytest.TempPathFactory) -> ReadBytes:
    """Function that reads a dataset from a file with the given bytes."""
    path = tmp_path_factory.mktemp("dataset") / "data.json"

    def read(content: bytes) -> list[PromptRow]:
        path.write_bytes(content)
        return read_dataset(path)

    return read


def _dump(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode()


def test_formats_are_recognised(read_bytes: ReadBytes) -> None:
    assert read_bytes(_dump(_UPSTREAM)) == [PromptRow("a b", "c d", 1), PromptRow("e f", "g", 2)]
    assert read_bytes(_dump(_SHAREGPT)) == [PromptRow("Hi", "Hello you", 1)]


def test_a_byte_order_mark_is_accepted(read_bytes: ReadBytes) -> None:
    assert read_bytes(b"\xef\xbb\xbf" + _dump(_UPSTREAM)) == read_bytes(_dump(_UPSTREAM))


def test_windows_line_ends_are_accepted(read_bytes: ReadBytes) -> None:
    content = _dump(_UPSTREAM)
    assert b"\n" in content
    assert read_bytes(content.replace(b"\n", b"\r\n") + b"\r\n") == read_bytes(content)


def test_text_beyond_ascii_is_read_as_utf_8(read_bytes: ReadBytes) -> None:
    rows = read_bytes('[{"input": "Grüße 🦊", "instruction": "日本", "output": "é"}]'.encode())
    assert rows == [PromptRow("Grüße 🦊 日本", "é", 1)]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "line 1, column 1"),
        (b"not json", "line 1, column 1"),
        (b'[\n {"input": "a",}\n]', "line 2, column"),
        (b'[\r\n\r\n {"input" "a"}]', "line 3, column 11"),
        (b'{"prompt": "one"}\n{"prompt": "two"}\n', "line 2, column 1"),
        (b'\xef\xbb\xbf{"a": 1} x', "line 1, column 10"),
        (b'[{"input": "line\nbreak"}]', "line 1, column 17"),
    ],
)
def test_invalid_json_error_has_line_and_column(read_bytes: ReadBytes, content: bytes, place: str) -> None:
    with pytest.raises(DatasetError, match=rf"data\.json, {place}.*: is not JSON: "):
        read_bytes(content)


@pytest.mark.parametrize(
    ("content", "byte"), [(b'["\xff"]', 2), ("[]".encode("utf-16"), 0), ("[é]".encode("latin-1"), 1), (b'["\xf0\x9f\xa6', 2)]
)
def test_invalid_utf_8_error_has_the_byte_offset(read_bytes: ReadBytes, content: bytes, byte: int) -> None:
    with pytest.raises(DatasetError, match=rf"data\.json, byte {byte}: is not UTF-8: "):
        read_bytes(content)


def test_byte_offset_includes_the_byte_order_mark(read_bytes: ReadBytes) -> None:
    content = b'\xef\xbb\xbf["\xff"]'
    with pytest.raises(DatasetError, match=rf"byte {content.index(0xFF)}: "):
        read_bytes(content)


@pytest.mark.parametrize("document", [[], {}, "text", 3, None, True, {"input": "a", "instruction": "b", "output": "c"}])
def test_only_an_array_with_rows_is_a_dataset(read_bytes: ReadBytes, document: Any) -> None:
    with pytest.raises(DatasetError, match="must be a JSON array with at least one row"):
        read_bytes(_dump(document))


@pytest.mark.parametrize("row", [{}, {"prompt": "x"}, [], "text", None, 4])
def test_unknown_format_error_lists_the_known_ones(read_bytes: ReadBytes, row: Any) -> None:
    with pytest.raises(DatasetError, match=r"row 1: unknown format; .*input, instruction and output.*conversations"):
        read_bytes(_dump([row]))


def test_later_row_of_another_format_error_has_the_row(read_bytes: ReadBytes) -> None:
    with pytest.raises(DatasetError, match="row 3"):
        read_bytes(_dump([*_UPSTREAM, *_SHAREGPT]))
    with pytest.raises(DatasetError, match="row 2"):
        read_bytes(_dump([*_SHAREGPT, *_UPSTREAM]))


def test_conversations_without_usable_pair_are_rejected(read_bytes: ReadBytes) -> None:
    with pytest.raises(DatasetError, match="holds no usable prompt"):
        read_bytes(_dump([{"conversations": []}, {"conversations": [{"from": "human", "value": "Hi"}]}]))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nowhere\.json: No such file"):
        read_dataset(tmp_path / "nowhere.json")


def test_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="Is a directory"):
        read_dataset(tmp_path)


def test_deep_nesting_is_rejected(read_bytes: ReadBytes) -> None:
    with pytest.raises(DatasetError, match="nested too deeply"):
        read_bytes(b"[" * 100_000)


def test_integer_too_long_for_python_is_rejected(read_bytes: ReadBytes) -> None:
    with pytest.raises(DatasetError):
        read_bytes(b'[{"input": "a", "instruction": "b", "output": "c", "id": ' + b"1" * 5_000 + b"}]")


@pytest.mark.parametrize(
    "document",
    [
        [*_UPSTREAM, {"input": "cut emoji \ud83e", "instruction": "b", "output": "c"}],
        [*_SHAREGPT, {"conversations": [{"from": "human", "value": "\ud83e"}, {"from": "gpt", "value": "x"}]}],
    ],
)
def test_half_a_surrogate_pair_error_has_the_row(read_bytes: ReadBytes, document: Any) -> None:
    with pytest.raises(DatasetError, match="row"):
        read_bytes(_dump(document))


# Arbitrary JSON, biased towards the known keys so that it passes the format check and reaches the readers.
_TEXT = st.text(alphabet=st.characters(), max_size=5)
_KEYS = st.sampled_from(
    ["input", "instruction", "output", "conversations", "conversation", "from", "value", "role", "content", "id"]
)
_WORDS = st.sampled_from(["human", "gpt", "user", "assistant", "system", "Hi"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT | _WORDS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(_KEYS | _TEXT, children, max_size=4),
    max_leaves=20,
)
_TURN = st.fixed_dictionaries({}, optional=dict.fromkeys(("from", "value", "role", "content"), _JSON | _WORDS))
_ROW = st.one_of(
    _JSON,
    st.fixed_dictionaries({}, optional=dict.fromkeys(("input", "instruction", "output"), _JSON | _TEXT)),
    st.fixed_dictionaries({"conversations": st.lists(_TURN | _JSON, max_size=4) | _JSON}),
)


@settings(max_examples=150)
@given(_JSON | st.lists(_ROW, min_size=1, max_size=4))
@example(_UPSTREAM)
@example(_SHAREGPT)
def test_any_json_is_read_or_rejected(read_bytes: ReadBytes, document: Any) -> None:
    try:
        rows = read_bytes(json.dumps(document).encode())
    except DatasetError:
        return
    assert rows
    assert all(isinstance(row.prompt, str) and isinstance(row.answer, str) for row in rows)
    assert [row.row for row in rows] == sorted({row.row for row in rows})
    assert all(1 <= row.row <= len(document) for row in rows)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_rejected(read_bytes: ReadBytes, content: bytes) -> None:
    with pytest.raises(DatasetError):  # 40 random bytes are practically never a dataset
        read_bytes(content)


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=4))
def test_upstream_rows_round_trip(read_bytes: ReadBytes, texts: list[tuple[str, str, str]]) -> None:
    rows = read_bytes(json.dumps([{"input": f"<{a}", "instruction": f"{b}>", "output": c} for a, b, c in texts]).encode())
    assert rows == [PromptRow(f"<{a} {b}>", c, number) for number, (a, b, c) in enumerate(texts, start=1)]


# ---- rows to requests


def _rows(*prompts: str) -> list[PromptRow]:
    return [PromptRow(prompt, "one two three", number) for number, prompt in enumerate(prompts, start=1)]


def _one_id_per_letter(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def _limited(max_input_len: int | None = None, context_tokens: int | None = None) -> DatasetWorkload:
    return DatasetWorkload(1.0, _one_id_per_letter, LengthLimits(max_input_len, context_tokens))


def test_rows_become_requests_in_their_order() -> None:
    made = DatasetWorkload(2.0, _one_id_per_letter, ignore_eos=True).requests(_rows("ab", "c"))
    first, second = made.requests
    assert (first.prompt, first.input_ids, first.input_tokens, first.output_tokens) == ("ab", (97, 98), 2, 6)
    assert (second.prompt, second.input_ids, second.input_tokens, second.output_tokens) == ("c", (99,), 1, 6)
    assert first.ignore_eos
    assert (made.rows, made.dropped_too_long) == (2, 0)


def test_request_without_tokenizer_is_text_only_and_unlimited() -> None:
    made = DatasetWorkload(1.0, limits=LengthLimits(context_tokens=2)).requests(_rows("abcdef"))
    (request,) = made.requests
    assert (request.prompt, request.input_ids, request.input_tokens, request.ignore_eos) == ("abcdef", None, None, False)
    assert made.dropped_too_long == 0


def test_token_limit_without_tokenizer_is_rejected() -> None:
    with pytest.raises(WorkloadError, match=r"--max_input_len .* needs --tokenizer_dir"):
        DatasetWorkload(1.0, limits=LengthLimits(max_input_len=2)).requests(_rows("abcdef"))


def test_excessive_output_tokens_are_rejected() -> None:
    with pytest.raises(WorkloadError, match="--op_tokens_per_word"):
        DatasetWorkload(1e10).requests(_rows("abcdef"))


@pytest.mark.parametrize(("num_requests", "sent"), [(None, 5), (1, 1), (3, 3), (5, 5), (9, 5)])
def test_num_requests_caps_and_never_repeats(num_requests: int | None, sent: int) -> None:
    made = DatasetWorkload(1.0).requests(_rows("a", "b", "c", "d", "e"), num_requests)
    assert [request.prompt for request in made.requests] == ["a", "b", "c", "d", "e"][:sent]
    assert made.rows == sent


def test_prompts_longer_than_max_input_len_are_dropped_and_counted() -> None:
    made = _limited(max_input_len=2).requests(_rows("aaa", "aa", "aaaa", "a", "aaa"))
    assert [request.prompt for request in made.requests] == ["aa", "a"]
    assert (made.rows, made.dropped_too_long) == (5, 3)


def test_num_requests_counts_sent_requests_and_unread_rows_are_not_dropped() -> None:
    made = _limited(max_input_len=2).requests(_rows("aaa", "a", "aaa", "b", "aaa", "c"), 2)
    assert [request.prompt for request in made.requests] == ["a", "b"]
    assert (made.rows, made.dropped_too_long) == (4, 2)


def test_prompts_that_overflow_the_context_with_their_output_are_dropped() -> None:
    made = _limited(context_tokens=10).requests(_rows("a" * 7, "a" * 8))  # 3 tokens out
    assert [request.input_tokens for request in made.requests] == [7]
    assert made.dropped_too_long == 1


@pytest.mark.parametrize(
    ("answer", "per_word", "tokens"),
    [
        ("one two three", 1.3, 3),  # int(3.9)
        ("one two three four five six seven eight nine ten", 1.3, 13),
        ("one", 0.1, 1),  # never less than one
        ("", 1.3, 1),
        ("one  two", 1.0, 3),  # words are split at single spaces, with an empty word between two of them
        ("one\ntwo", 1.0, 1),
        ("one two", 0.5, 1),
        ("one two", 2.5, 5),
    ],
)
def test_output_length_follows_upstreams_rule(answer: str, per_word: float, tokens: int) -> None:
    made = DatasetWorkload(per_word).requests([PromptRow("p", answer, 1)])
    assert made.requests[0].output_tokens == tokens


def test_error_without_remaining_requests_names_the_option() -> None:
    with pytest.raises(WorkloadError, match="every prompt of the dataset is longer than --max_input_len 2 allows"):
        _limited(max_input_len=2).requests(_rows("aaa", "aaaa"))


def test_error_because_of_the_context_does_not_name_max_input_len() -> None:
    with pytest.raises(WorkloadError) as raised:
        _limited(context_tokens=4).requests(_rows("aaa"))
    assert "--max_input_len None" not in str(raised.value)


@pytest.mark.parametrize("per_word", [float("nan"), float("inf")])
def test_non_finite_tokens_per_word_are_rejected(per_word: float) -> None:
    with pytest.raises(WorkloadError, match="--op_tokens_per_word"):
        DatasetWorkload(per_word).requests(_rows("a"))


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=12),
    st.none() | st.integers(1, 8),
    st.none() | st.integers(0, 12),
    st.none() | st.integers(0, 15),
)
def test_every_read_row_is_sent_or_counted_as_dropped(
    lengths: list[int], num_requests: int | None, max_input_len: int | None, context_tokens: int | None
) -> None:
    rows = _rows(*("a" * length for length in lengths))
    fits = [
        length
        for length in lengths
        if (max_input_len is None or length <= max_input_len) and (context_tokens is None or length + 3 <= context_tokens)
    ][:num_requests]
    if not fits:
        with pytest.raises(WorkloadError):
            DatasetWorkload(
                1.0, _one_id_per_letter, limits=LengthLimits(max_input_len=max_input_len, context_tokens=context_tokens)
            ).requests(rows, num_requests)
        return
    made = DatasetWorkload(
        1.0, _one_id_per_letter, limits=LengthLimits(max_input_len=max_input_len, context_tokens=context_tokens)
    ).requests(rows, num_requests)
    assert [request.input_tokens for request in made.requests] == fits
    assert made.rows == len(made.requests) + made.dropped_too_long


@pytest.mark.parametrize("prompt", ["", " "])
def test_empty_prompt_error_names_the_row(prompt: str) -> None:
    with pytest.raises(WorkloadError, match=r"row 2 .* empty prompt"):
        DatasetWorkload(1.0, _one_id_per_letter).requests(_rows("aaa", prompt))

"""Reading a dataset of any shape, and turning its rows into requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workloads.dataset import dataset_requests, read_dataset
from workloads.errors import DatasetError, WorkloadError
from workloads.request import LengthLimits, PromptRow

ReadBytes = Callable[[bytes], list[PromptRow]]

_UPSTREAM = [{"input": "a", "instruction": "b", "output": "c d"}, {"input": "e", "instruction": "f", "output": "g"}]
_SHAREGPT = [{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello you"}]}]


@pytest.fixture(scope="session")
def read_bytes(tmp_path_factory: pytest.TempPathFactory) -> ReadBytes:
    """Reads a dataset from a file that holds the given bytes."""
    path = tmp_path_factory.mktemp("dataset") / "data.json"

    def read(content: bytes) -> list[PromptRow]:
        path.write_bytes(content)
        return read_dataset(path)

    return read


def _dump(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode()


def test_shapes_are_told_apart(read_bytes: ReadBytes) -> None:
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
def test_what_is_not_json_is_refused_with_line_and_column(read_bytes: ReadBytes, content: bytes, place: str) -> None:
    with pytest.raises(DatasetError, match=rf"data\.json, {place}.*: is not JSON: "):
        read_bytes(content)


@pytest.mark.parametrize(
    ("content", "byte"), [(b'["\xff"]', 2), ("[]".encode("utf-16"), 0), ("[é]".encode("latin-1"), 1), (b'["\xf0\x9f\xa6', 2)]
)
def test_what_is_not_utf_8_is_refused_with_its_place(read_bytes: ReadBytes, content: bytes, byte: int) -> None:
    with pytest.raises(DatasetError, match=rf"data\.json, byte {byte}: is not UTF-8: "):
        read_bytes(content)


def test_the_place_of_a_bad_byte_counts_the_byte_order_mark(read_bytes: ReadBytes) -> None:
    content = b'\xef\xbb\xbf["\xff"]'
    with pytest.raises(DatasetError, match=rf"byte {content.index(0xFF)}: "):
        read_bytes(content)


@pytest.mark.parametrize("document", [[], {}, "text", 3, None, True, {"input": "a", "instruction": "b", "output": "c"}])
def test_only_an_array_with_rows_is_a_dataset(read_bytes: ReadBytes, document: Any) -> None:
    with pytest.raises(DatasetError, match="must be a JSON array with at least one row"):
        read_bytes(_dump(document))


@pytest.mark.parametrize("row", [{}, {"prompt": "x"}, [], "text", None, 4])
def test_an_unknown_shape_says_what_is_known(read_bytes: ReadBytes, row: Any) -> None:
    with pytest.raises(DatasetError, match=r"row 1: unknown shape; .*input, instruction and output.*conversations"):
        read_bytes(_dump([row]))


def test_rows_of_another_shape_further_down_are_refused_with_their_row(read_bytes: ReadBytes) -> None:
    with pytest.raises(DatasetError, match="row 3"):
        read_bytes(_dump([*_UPSTREAM, *_SHAREGPT]))
    with pytest.raises(DatasetError, match="row 2"):
        read_bytes(_dump([*_SHAREGPT, *_UPSTREAM]))


def test_conversations_without_any_usable_pair_are_no_dataset(read_bytes: ReadBytes) -> None:
    with pytest.raises(DatasetError, match="holds no usable prompt"):
        read_bytes(_dump([{"conversations": []}, {"conversations": [{"from": "human", "value": "Hi"}]}]))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nowhere\.json: No such file"):
        read_dataset(tmp_path / "nowhere.json")


def test_a_folder_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="Is a directory"):
        read_dataset(tmp_path)


def test_deep_nesting_is_refused(read_bytes: ReadBytes) -> None:
    with pytest.raises(DatasetError, match="nested too deeply"):
        read_bytes(b"[" * 100_000)


def test_an_integer_too_long_for_python_is_refused(read_bytes: ReadBytes) -> None:
    with pytest.raises(DatasetError):
        read_bytes(b'[{"input": "a", "instruction": "b", "output": "c", "id": ' + b"1" * 5_000 + b"}]")


@pytest.mark.parametrize(
    "document",
    [
        [*_UPSTREAM, {"input": "cut emoji \ud83e", "instruction": "b", "output": "c"}],
        [*_SHAREGPT, {"conversations": [{"from": "human", "value": "\ud83e"}, {"from": "gpt", "value": "x"}]}],
    ],
)
def test_half_a_surrogate_pair_is_refused_with_its_row(read_bytes: ReadBytes, document: Any) -> None:
    with pytest.raises(DatasetError, match="row"):
        read_bytes(_dump(document))


# Arbitrary JSON, pulled towards the known keys so that the readers themselves see it and not only the shape check.
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
def test_any_json_is_read_or_refused_as_a_dataset(read_bytes: ReadBytes, document: Any) -> None:
    try:
        rows = read_bytes(json.dumps(document).encode())
    except DatasetError:
        return
    assert rows
    assert all(isinstance(row.prompt, str) and isinstance(row.answer, str) for row in rows)
    assert [row.row for row in rows] == sorted({row.row for row in rows})
    assert all(1 <= row.row <= len(document) for row in rows)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused_as_a_dataset(read_bytes: ReadBytes, content: bytes) -> None:
    with pytest.raises(DatasetError):  # 40 bytes hold no dataset but by a miracle
        read_bytes(content)


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=4))
def test_upstream_rows_are_read_back_as_they_were_written(read_bytes: ReadBytes, texts: list[tuple[str, str, str]]) -> None:
    rows = read_bytes(json.dumps([{"input": f"<{a}", "instruction": f"{b}>", "output": c} for a, b, c in texts]).encode())
    assert rows == [PromptRow(f"<{a} {b}>", c, number) for number, (a, b, c) in enumerate(texts, start=1)]


# ---- rows to requests


def _rows(*prompts: str) -> list[PromptRow]:
    return [PromptRow(prompt, "one two three", number) for number, prompt in enumerate(prompts, start=1)]


def _one_id_a_letter(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_rows_become_requests_in_their_order() -> None:
    made = dataset_requests(_rows("ab", "c"), _one_id_a_letter, None, 2.0, ignore_eos=True)
    first, second = made.requests
    assert (first.prompt, first.input_ids, first.input_tokens, first.output_tokens) == ("ab", (97, 98), 2, 6)
    assert (second.prompt, second.input_ids, second.input_tokens, second.output_tokens) == ("c", (99,), 1, 6)
    assert first.ignore_eos
    assert (made.rows, made.dropped_too_long) == (2, 0)


def test_without_a_tokenizer_a_request_is_text_alone_and_no_length_is_checked() -> None:
    made = dataset_requests(_rows("abcdef"), None, None, 1.0, LengthLimits(context_tokens=2))
    (request,) = made.requests
    assert (request.prompt, request.input_ids, request.input_tokens, request.ignore_eos) == ("abcdef", None, None, False)
    assert made.dropped_too_long == 0


def test_a_limit_in_tokens_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"--max_input_len .* needs --tokenizer_dir"):
        dataset_requests(_rows("abcdef"), None, None, 1.0, LengthLimits(max_input_len=2))


def test_more_output_tokens_than_any_context_are_refused() -> None:
    with pytest.raises(WorkloadError, match="--op_tokens_per_word"):
        dataset_requests(_rows("abcdef"), None, None, 1e10)


@pytest.mark.parametrize(("num_requests", "sent"), [(None, 5), (1, 1), (3, 3), (5, 5), (9, 5)])
def test_num_requests_caps_and_never_repeats(num_requests: int | None, sent: int) -> None:
    made = dataset_requests(_rows("a", "b", "c", "d", "e"), None, num_requests, 1.0)
    assert [request.prompt for request in made.requests] == ["a", "b", "c", "d", "e"][:sent]
    assert made.rows == sent


def test_prompts_longer_than_max_input_len_are_dropped_and_counted() -> None:
    made = dataset_requests(_rows("aaa", "aa", "aaaa", "a", "aaa"), _one_id_a_letter, None, 1.0, LengthLimits(max_input_len=2))
    assert [request.prompt for request in made.requests] == ["aa", "a"]
    assert (made.rows, made.dropped_too_long) == (5, 3)


def test_num_requests_counts_what_is_sent_and_rows_behind_the_last_are_not_counted_as_dropped() -> None:
    made = dataset_requests(_rows("aaa", "a", "aaa", "b", "aaa", "c"), _one_id_a_letter, 2, 1.0, LengthLimits(max_input_len=2))
    assert [request.prompt for request in made.requests] == ["a", "b"]
    assert (made.rows, made.dropped_too_long) == (4, 2)


def test_prompts_that_overflow_the_context_with_their_output_are_dropped() -> None:
    made = dataset_requests(
        _rows("a" * 7, "a" * 8), _one_id_a_letter, None, 1.0, LengthLimits(context_tokens=10)
    )  # 3 tokens out
    assert [request.input_tokens for request in made.requests] == [7]
    assert made.dropped_too_long == 1


@pytest.mark.parametrize(
    ("answer", "per_word", "tokens"),
    [
        ("one two three", 1.3, 3),  # int(3.9)
        ("one two three four five six seven eight nine ten", 1.3, 13),
        ("one", 0.1, 1),  # never less than one
        ("", 1.3, 1),
        ("one  two", 1.0, 3),  # single spaces part words: between two of them lies an empty one
        ("one\ntwo", 1.0, 1),
        ("one two", 0.5, 1),
        ("one two", 2.5, 5),
    ],
)
def test_the_output_length_is_upstream_s_rule(answer: str, per_word: float, tokens: int) -> None:
    made = dataset_requests([PromptRow("p", answer, 1)], None, None, per_word)
    assert made.requests[0].output_tokens == tokens


def test_nothing_left_to_send_is_an_error_that_names_the_option() -> None:
    with pytest.raises(WorkloadError, match="every prompt of the dataset is longer than --max_input_len 2 allows"):
        dataset_requests(_rows("aaa", "aaaa"), _one_id_a_letter, None, 1.0, LengthLimits(max_input_len=2))


def test_nothing_left_because_of_the_context_does_not_blame_max_input_len() -> None:
    with pytest.raises(WorkloadError) as raised:
        dataset_requests(_rows("aaa"), _one_id_a_letter, None, 1.0, LengthLimits(context_tokens=4))
    assert "--max_input_len None" not in str(raised.value)


@pytest.mark.parametrize("per_word", [float("nan"), float("inf")])
def test_tokens_per_word_that_are_no_number_are_refused(per_word: float) -> None:
    with pytest.raises(WorkloadError, match="--op_tokens_per_word"):
        dataset_requests(_rows("a"), None, None, per_word)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=12),
    st.none() | st.integers(1, 8),
    st.none() | st.integers(0, 12),
    st.none() | st.integers(0, 15),
)
def test_every_row_that_was_read_is_sent_or_counted_as_dropped(
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
            dataset_requests(rows, _one_id_a_letter, num_requests, 1.0, LengthLimits(max_input_len, context_tokens))
        return
    made = dataset_requests(rows, _one_id_a_letter, num_requests, 1.0, LengthLimits(max_input_len, context_tokens))
    assert [request.input_tokens for request in made.requests] == fits
    assert made.rows == len(made.requests) + made.dropped_too_long


@pytest.mark.parametrize("prompt", ["", " "])
def test_an_empty_prompt_is_an_error_that_names_its_row(prompt: str) -> None:
    with pytest.raises(WorkloadError, match=r"row 2 .* empty prompt"):
        dataset_requests(_rows("aaa", prompt), _one_id_a_letter, None, 1.0)

"""Rows of a dataset as requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import WorkloadError
from workloads.elements.request import LengthLimits
from workloads.prompts.dataset import DatasetPrompts, OutputLengths
from workloads.table.workload import Workload, WorkloadFacts

_FACTS = WorkloadFacts("upstream", "data.json")
_A_TOKEN_A_WORD = OutputLengths(1.0)
_AT_MOST_2 = LengthLimits(max_input_len=2)


def _rows(*prompts: str, answer: str = "one two three") -> Workload:
    return Workload.of_columns(_FACTS, len(prompts), {"prompt": prompts, "answer": [answer] * len(prompts)})


def _one_id_a_letter(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_rows_become_requests_in_their_order() -> None:
    made = DatasetPrompts(_rows("ab", "c"), _one_id_a_letter, OutputLengths(2.0), ignore_eos=True).draw(None)
    first, second = made.requests
    assert (first.prompt, first.input_ids, first.input_tokens, first.output_tokens) == ("ab", (97, 98), 2, 6)
    assert (second.prompt, second.input_ids, second.input_tokens, second.output_tokens) == ("c", (99,), 1, 6)
    assert first.ignore_eos
    assert (made.rows, made.dropped_too_long) == (2, 0)


def test_without_a_tokenizer_a_request_is_text_alone_and_no_length_is_checked() -> None:
    made = DatasetPrompts(_rows("abcdef"), None, _A_TOKEN_A_WORD, LengthLimits(context_tokens=2)).draw(None)
    (request,) = made.requests
    assert (request.prompt, request.input_ids, request.input_tokens, request.ignore_eos) == ("abcdef", None, None, False)
    assert made.dropped_too_long == 0


def test_a_limit_in_tokens_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"^max_input_len counts tokens, so it needs tokenizer_dir$"):
        DatasetPrompts(_rows("abcdef"), None, _A_TOKEN_A_WORD, LengthLimits(max_input_len=2)).draw(None)


def test_more_output_tokens_than_any_context_are_refused() -> None:
    problem = r"^op_tokens_per_word 3\.4e\+06: requests more than 10,000,000 tokens$"
    with pytest.raises(WorkloadError, match=problem):
        DatasetPrompts(_rows("abcdef", answer="one two three"), None, OutputLengths(3.4e6)).draw(None)
    longest = DatasetPrompts(_rows("abcdef", answer="one two"), None, OutputLengths(5e6)).draw(None)
    assert [request.output_tokens for request in longest.requests] == [10_000_000]


@pytest.mark.parametrize(("num_requests", "sent"), [(None, 5), (1, 1), (3, 3), (5, 5), (9, 5)])
def test_num_requests_caps_and_never_repeats(num_requests: int | None, sent: int) -> None:
    made = DatasetPrompts(_rows("a", "b", "c", "d", "e"), None, _A_TOKEN_A_WORD).draw(num_requests)
    assert [request.prompt for request in made.requests] == ["a", "b", "c", "d", "e"][:sent]
    assert made.rows == sent


def test_prompts_longer_than_max_input_len_are_dropped_and_counted() -> None:
    made = DatasetPrompts(
        _rows("aaa", "aa", "aaaa", "a", "aaa"), _one_id_a_letter, _A_TOKEN_A_WORD, LengthLimits(max_input_len=2)
    ).draw(None)
    assert [request.prompt for request in made.requests] == ["aa", "a"]
    assert (made.rows, made.dropped_too_long) == (5, 3)


def test_num_requests_counts_what_is_sent_and_rows_behind_the_last_are_not_counted_as_dropped() -> None:
    made = DatasetPrompts(
        _rows("aaa", "a", "aaa", "b", "aaa", "c"), _one_id_a_letter, _A_TOKEN_A_WORD, LengthLimits(max_input_len=2)
    ).draw(2)
    assert [request.prompt for request in made.requests] == ["a", "b"]
    assert (made.rows, made.dropped_too_long) == (4, 2)


def test_prompts_that_overflow_the_context_with_their_output_are_dropped() -> None:
    made = DatasetPrompts(_rows("a" * 7, "a" * 8), _one_id_a_letter, _A_TOKEN_A_WORD, LengthLimits(context_tokens=10)).draw(
        None
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
    made = DatasetPrompts(_rows("p", answer=answer), None, OutputLengths(per_word)).draw(None)
    assert made.requests[0].output_tokens == tokens


def test_nothing_left_to_send_is_an_error_that_names_the_option() -> None:
    with pytest.raises(
        WorkloadError, match=r"^every prompt of the dataset is longer than max_input_len 2 allows; nothing is left to send$"
    ):
        DatasetPrompts(_rows("aaa", "aaaa"), _one_id_a_letter, _A_TOKEN_A_WORD, _AT_MOST_2).draw(None)


def test_nothing_left_because_of_the_context_does_not_blame_max_input_len() -> None:
    with pytest.raises(WorkloadError) as raised:
        DatasetPrompts(_rows("aaa"), _one_id_a_letter, _A_TOKEN_A_WORD, LengthLimits(context_tokens=4)).draw(None)
    assert str(raised.value) == (
        "every prompt of the dataset is longer than the context of 4 tokens allows; nothing is left to send"
    )


@pytest.mark.parametrize("per_word", [float("nan"), float("inf"), 0.0, -0.5])
def test_tokens_per_word_that_are_no_number_are_refused(per_word: float) -> None:
    with pytest.raises(WorkloadError, match=f"^op_tokens_per_word {per_word:g}: must be a positive number$"):
        DatasetPrompts(_rows("a"), None, OutputLengths(per_word)).draw(None)


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
            DatasetPrompts(rows, _one_id_a_letter, _A_TOKEN_A_WORD, LengthLimits(max_input_len, context_tokens)).draw(
                num_requests
            )
        return
    made = DatasetPrompts(rows, _one_id_a_letter, _A_TOKEN_A_WORD, LengthLimits(max_input_len, context_tokens)).draw(
        num_requests
    )
    assert [request.input_tokens for request in made.requests] == fits
    assert made.rows == len(made.requests) + made.dropped_too_long


@pytest.mark.parametrize("prompt", ["", " "])
def test_an_empty_prompt_is_an_error_that_names_its_row(prompt: str) -> None:
    with pytest.raises(WorkloadError, match=r"^row 2 of the dataset has an empty prompt$"):
        DatasetPrompts(_rows("aaa", prompt), _one_id_a_letter, _A_TOKEN_A_WORD).draw(None)


def test_a_length_of_the_dataset_is_requested_whatever_the_answer() -> None:
    columns = {"prompt": ["a", "b", "c"], "answer": ["one two", "one two", None], "output_tokens": [7, None, None]}
    made = DatasetPrompts(Workload.of_columns(_FACTS, 3, columns), None, OutputLengths(1.0, without_answer=50)).draw(None)
    assert [request.output_tokens for request in made.requests] == [7, 2, 50]
    assert made.without_length == 1


def test_of_a_conversation_the_first_turn_is_sent() -> None:
    history = [[{"role": "system", "content": "s"}], None, None, None]
    columns = {"prompt": ["a", "b", None, "d"], "parent": [None, 0, None, None], "history": history}
    made = DatasetPrompts(Workload.of_columns(_FACTS, 4, columns), None, _A_TOKEN_A_WORD).draw(None)
    assert [request.prompt for request in made.requests] == ["a", "d"]
    assert (made.rows, made.without_history) == (2, 1)


@pytest.mark.parametrize("tokens", [0, -1, 10_000_001])
def test_a_length_for_rows_without_one_is_checked(tokens: int) -> None:
    with pytest.raises(WorkloadError, match=f"^output_tokens {tokens}: must be from 1 to 10,000,000$"):
        DatasetPrompts(_rows("a"), None, OutputLengths(1.0, tokens)).draw(None)

"""Exchanges are made of Triton's own messages and read by the real client; expected records are worked out by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from msgspec import structs
from tritonclient.grpc import service_pb2

from bench_records.record import Outcome, Record, TokenSource
from harness.clients.protocol import MalformedResponseError, Response
from harness.clients.server_times import ServerTimes
from harness.clients.triton.grpc import TritonGrpcClient, TritonModel
from harness.journal.worker_journal import Exchange
from harness.recording.recorder import CountTokens, Recorder
from harness.recording.schedule_summary import summarise_schedule
from workloads.elements.request import CancelPoint, Request
from workloads.schedule.schedule import Schedule, SessionSchedule

_CORE = frozenset({"input_ids", "input_lengths", "request_output_len", "streaming"})
_TEXT = frozenset({"text_input", "max_tokens", "stream"})
_EXCLUDE = frozenset({"exclude_input_in_output"})
_OFFSET_NS = 5_000
_DUE_NS = 5_040  # not the offset: in a closed loop the due time depends on an answer
_RELEASED_NS = 5_090
_SENT_NS = 5_100
_DONE_NS = 9_000


def _recorder(request: Request, inputs: frozenset[str], count_tokens: CountTokens | None = None) -> Recorder:
    model = TritonModel("model", decoupled=True, inputs=inputs, outputs=frozenset(), parameters=())
    client = TritonGrpcClient("127.0.0.1:1", model, streaming=True)
    return Recorder(summarise_schedule(Schedule((request,), (_OFFSET_NS,), seed=0)), client, count_tokens)


def _exchange(
    *bodies: tuple[int, bytes], failure: Outcome | None = None, error: str | None = None, done_ns: int = _DONE_NS
) -> Exchange:
    return Exchange(
        0, _DUE_NS, _RELEASED_NS, _SENT_NS, done_ns, [ns for ns, _ in bodies], [body for _, body in bodies], failure, error
    )


def _body(outputs: dict[str, bytes], error: str = "") -> bytes:
    message = service_pb2.ModelStreamInferResponse(error_message=error)
    for name, raw in outputs.items():
        message.infer_response.outputs.add(name=name)
        message.infer_response.raw_output_contents.append(raw)
    body: bytes = message.SerializeToString()
    return body


def _ints(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _ids(*ids: int, length: int | None = None) -> bytes:
    outputs = {"output_ids": _ints(ids)}
    if length is not None:
        outputs["sequence_length"] = _ints([length])
    return _body(outputs)


def _text(text: str, **counts: int) -> bytes:
    raw = text.encode()
    return _body({"text_output": struct.pack("<I", len(raw)) + raw} | {name: _ints([count]) for name, count in counts.items()})


def _error(message: str) -> bytes:
    body: bytes = service_pb2.ModelStreamInferResponse(error_message=message).SerializeToString()
    return body


_PROMPT_OF_3 = Request(output_tokens=4, input_ids=(11, 12, 13), input_tokens=3, ignore_eos=True, session="s")


def test_streamed_core_answer() -> None:
    exchange = _exchange((6_000, _ids(7)), (6_400, _ids(8)), (7_000, _ids(9, 10)), (7_100, _ids()))
    assert _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(exchange, worker=2) == Record(
        index=0,
        outcome=Outcome.DONE,
        scheduled_ns=_DUE_NS,
        requested_output_tokens=4,
        released_ns=_RELEASED_NS,
        sent_ns=_SENT_NS,
        done_ns=_DONE_NS,
        token_times_ns=(6_000, 6_400, 7_000),  # the marker without a token at 7_100 is no token
        token_counts=(1, 1, 2),
        input_tokens=3,
        output_tokens=4,
        output_tokens_source=TokenSource.IDS,
        prompt_echoed=False,
        ignore_eos=True,
        error=None,
        worker=2,
        session="s",
        requested_input_tokens=3,
        server_counted_input=False,
        has_reasoning=False,
        target=0,
    )


def test_when_the_request_was_written_and_the_head_arrived_is_recorded() -> None:
    exchange = structs.replace(_exchange((6_000, _ids(7))), written_ns=5_100, head_ns=5_900)
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(exchange, 0)
    assert (record.written_ns, record.head_ns) == (5_100, 5_900)
    undecodable = structs.replace(_exchange((6_000, b"\xff")), written_ns=5_100, head_ns=5_900)
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(undecodable, 0)
    assert (record.outcome, record.written_ns, record.head_ns) == (Outcome.MALFORMED, 5_100, 5_900)


def test_an_answer_that_was_cancelled_as_planned_has_what_came_until_then() -> None:
    request = replace(_PROMPT_OF_3, traffic_class="chat", cancel=CancelPoint(after_tokens=2))
    exchange = _exchange((6_000, _ids(7)), (6_400, _ids(8)), failure=Outcome.WITHDRAWN, error="the client cancelled it")
    record = _recorder(request, _CORE | _EXCLUDE).record(exchange, 0)
    assert (record.outcome, record.error) == (Outcome.WITHDRAWN, None)
    assert (record.token_times_ns, record.output_tokens) == ((6_000, 6_400), 2)
    assert (record.traffic_class, record.cancel_after_tokens, record.cancel_after_ns) == ("chat", 2, None)
    nothing = _recorder(request, _CORE | _EXCLUDE).record(_exchange(failure=Outcome.WITHDRAWN), 0)
    assert (nothing.outcome, nothing.token_times_ns, nothing.output_tokens) == (Outcome.WITHDRAWN, (), None)
    failed = _recorder(request, _CORE | _EXCLUDE).record(_exchange((6_000, _error("x")), failure=Outcome.WITHDRAWN), 0)
    assert failed.outcome is Outcome.SERVER_ERROR


def test_marker_without_any_output_beside_responses_with_tokens_is_no_token() -> None:
    exchange = _exchange((6_000, _ids(7)), (6_400, _ids(8)), (6_500, _body({})))
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE, count_tokens=lambda text: 99).record(exchange, 0)
    assert (record.outcome, record.output_tokens, record.token_times_ns) == (Outcome.DONE, 2, (6_000, 6_400))
    assert record.output_tokens_source is TokenSource.IDS


def _counted(count: int, *ids: int) -> bytes:
    return _body({"output_ids": _ints(ids), "num_output_tokens": _ints([count])})


def test_ids_and_the_servers_count_of_them_are_kept_apart() -> None:
    exchange = _exchange((6_000, _counted(1, 7)), (6_400, _counted(2, 8)), (7_000, _counted(1, 9, 10)))
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(exchange, 0)
    assert (record.token_counts, record.token_times_ns) == ((1, 1, 2), (6_000, 6_400, 7_000))
    assert (record.output_tokens, record.output_tokens_source) == (4, TokenSource.SERVER)
    lost = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(_exchange((6_000, _counted(3, 7))), 0)
    assert (lost.token_counts, lost.output_tokens) == ((1,), 3)  # the finding token_counts_disagree reports it


def test_a_server_that_counts_some_of_its_responses_is_not_taken_at_its_word() -> None:
    exchange = _exchange((6_000, _counted(5, 7)), (6_400, _ids(8)))
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(exchange, 0)
    assert (record.token_counts, record.output_tokens, record.output_tokens_source) == ((1, 1), 2, TokenSource.IDS)


def test_a_last_response_without_ids_takes_nothing_from_those_before() -> None:
    exchange = _exchange((6_000, _ids(7, 8)), (6_400, _text("", num_output_tokens=0)))
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(exchange, 0)
    assert (record.token_counts, record.token_times_ns, record.output_tokens) == ((2,), (6_000,), 2)


def test_an_answer_of_nothing_is_an_answer_of_no_tokens() -> None:
    record = _recorder(_OF_TEXT, _TEXT | _EXCLUDE, _words).record(_exchange((6_000, _body({}))), 0)
    assert (record.outcome, record.token_times_ns) == (Outcome.DONE, ())
    assert (record.output_tokens, record.output_tokens_source) == (0, TokenSource.TEXT)


def test_first_token_that_ends_the_sequence_is_an_answer_of_no_tokens() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(_exchange((6_000, _ids())), 0)
    assert (record.outcome, record.output_tokens, record.token_times_ns, record.token_counts) == (Outcome.DONE, 0, (), ())


def test_unstreamed_core_answer_without_the_prompt() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((8_000, _ids(7, 8, 9, 10))), 0)
    assert (record.output_tokens, record.token_counts, record.token_times_ns) == (4, (4,), (8_000,))
    assert record.prompt_echoed is False


def test_echoed_prompt_is_not_counted() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((8_000, _ids(11, 12, 13, 7, 8))), 0)
    assert (record.output_tokens, record.token_counts, record.token_times_ns) == (2, (2,), (8_000,))
    assert (record.prompt_echoed, record.output_tokens_source) == (True, TokenSource.IDS)


def test_prompt_echoed_although_it_was_to_be_left_out_is_seen_by_the_number_of_tokens() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(_exchange((8_000, _ids(11, 12, 13, 7, 8, 9, 10))), 0)
    assert (record.output_tokens, record.prompt_echoed) == (4, True)


def test_answer_that_happens_to_begin_like_a_prompt_that_was_left_out_is_counted_whole() -> None:
    request = Request(output_tokens=4, input_ids=(7,), input_tokens=1)
    record = _recorder(request, _CORE | _EXCLUDE).record(_exchange((6_000, _ids(7)), (6_500, _ids(8))), 0)
    assert (record.output_tokens, record.token_times_ns, record.prompt_echoed) == (2, (6_000, 6_500), False)


def test_as_many_tokens_as_requested_are_no_echo_of_a_prompt_that_was_left_out() -> None:
    request = Request(output_tokens=2, input_ids=(7,), input_tokens=1)
    record = _recorder(request, _CORE | _EXCLUDE).record(_exchange((8_000, _ids(7, 8))), 0)
    assert (record.output_tokens, record.prompt_echoed) == (2, False)


def test_text_of_which_only_the_prompt_s_ids_are_known_may_be_an_echo() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((8_000, _text("it is wide", num_output_tokens=3))), 0)
    assert (record.output_tokens, record.prompt_echoed) == (3, None)


def test_prompt_echoed_in_a_response_of_its_own_carries_no_token() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((6_000, _ids(11, 12, 13)), (6_500, _ids(7))), 0)
    assert (record.output_tokens, record.token_times_ns, record.token_counts) == (1, (6_500,), (1,))


def test_padding_behind_the_sequence_length_is_not_counted() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(_exchange((8_000, _ids(7, 8, 0, 0, length=2))), 0)
    assert (record.output_tokens, record.token_counts) == (2, (2,))


_TEXT_PROMPT = "Write of the sea and of ships!!"
_OF_TEXT = Request(output_tokens=8, prompt=_TEXT_PROMPT, input_tokens=9)


def _words(text: str) -> int:
    return len(text.split())


def test_text_with_server_counts() -> None:
    exchange = _exchange(
        (6_000, _text("The", num_output_tokens=1, num_input_tokens=11)),
        (6_500, _text("", num_output_tokens=1, num_input_tokens=11)),  # a character that is not finished yet
        (7_000, _text(" sea is", num_output_tokens=3, num_input_tokens=11)),
        (7_100, _text("", num_output_tokens=0, num_input_tokens=11)),
    )
    record = _recorder(_OF_TEXT, _TEXT | _EXCLUDE, _words).record(exchange, 0)
    assert (record.output_tokens, record.output_tokens_source) == (5, TokenSource.SERVER)
    assert (record.token_times_ns, record.token_counts) == ((6_000, 6_500, 7_000), (1, 1, 3))
    assert record.input_tokens == 11  # the server's count is trusted more than ours
    assert record.text_tokens == 3  # "The sea is", beside the server's 5


def test_text_with_an_echoed_prompt_and_server_counts_is_not_reduced() -> None:
    exchange = _exchange((8_000, _text(_TEXT_PROMPT + " it is wide", num_output_tokens=3)))
    with_ids = replace(_OF_TEXT, input_ids=tuple(range(9)))  # known here, though the server was sent the text
    record = _recorder(with_ids, _TEXT, _words).record(exchange, 0)
    assert (record.output_tokens, record.prompt_echoed, record.output_tokens_source) == (3, True, TokenSource.SERVER)
    assert record.text_tokens is None  # the prompt is in the text


def test_text_without_server_counts_is_tokenised_again_as_a_whole() -> None:
    exchange = _exchange((6_000, _text("The se")), (6_500, _text("")), (7_000, _text("a is wide")))
    record = _recorder(_OF_TEXT, _TEXT | _EXCLUDE, _words).record(exchange, 0)
    assert (record.output_tokens, record.output_tokens_source) == (4, TokenSource.TEXT)  # "The sea is wide", not 2 + 3
    assert (record.token_times_ns, record.token_counts) == ((6_000, 7_000), None)
    assert record.input_tokens == 9


def test_text_without_server_counts_and_without_a_tokenizer_has_no_count() -> None:
    record = _recorder(_OF_TEXT, _TEXT | _EXCLUDE).record(_exchange((6_000, _text("The sea"))), 0)
    assert (record.outcome, record.token_times_ns) == (Outcome.DONE, (6_000,))
    assert (record.output_tokens, record.output_tokens_source, record.token_counts) == (None, None, None)


def test_echoed_text_is_taken_off_before_counting() -> None:
    record = _recorder(_OF_TEXT, _TEXT, _words).record(_exchange((8_000, _text(_TEXT_PROMPT + " it is wide"))), 0)
    assert (record.output_tokens, record.prompt_echoed) == (3, True)


def test_an_echo_is_seen_after_a_response_that_only_opens_the_answer() -> None:
    """vLLM's chats open with a chunk that has the role and an empty text."""
    bodies = (6_000, _text("")), (7_000, _text(_TEXT_PROMPT + " it")), (8_000, _text(" is wide"))
    record = _recorder(_OF_TEXT, _TEXT | _EXCLUDE, _words).record(_exchange(*bodies, failure=Outcome.WITHDRAWN), 0)
    assert (record.output_tokens, record.prompt_echoed) == (3, True)
    assert record.token_times_ns == (7_000, 8_000)


def test_short_prompt_that_was_left_out_is_not_taken_for_an_echo() -> None:
    request = Request(output_tokens=8, prompt="The")
    record = _recorder(request, _TEXT | _EXCLUDE, _words).record(_exchange((8_000, _text("The sea is wide"))), 0)
    assert (record.output_tokens, record.prompt_echoed) == (4, False)


@pytest.mark.parametrize(("characters", "echoed"), [(20, False), (21, True)])
def test_more_than_20_characters_of_a_prompt_that_was_left_out_are_an_echo(characters: int, echoed: bool) -> None:
    prompt = _TEXT_PROMPT[:characters]
    record = _recorder(Request(output_tokens=8, prompt=prompt), _TEXT | _EXCLUDE).record(_exchange((8_000, _text(prompt))), 0)
    assert record.prompt_echoed is echoed


def test_an_answer_that_begins_otherwise_is_no_echo_of_a_prompt_that_might_have_been_repeated() -> None:
    of_text = _recorder(_OF_TEXT, _TEXT, _words).record(_exchange((8_000, _text("it is wide"))), 0)
    assert (of_text.output_tokens, of_text.prompt_echoed) == (3, False)
    of_ids = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((8_000, _ids(21, 12, 13, 7))), 0)
    assert (of_ids.output_tokens, of_ids.prompt_echoed) == (4, False)


def test_long_prompt_at_the_beginning_is_an_echo_even_where_it_was_to_be_left_out() -> None:
    record = _recorder(_OF_TEXT, _TEXT | _EXCLUDE, _words).record(_exchange((8_000, _text(_TEXT_PROMPT + " wide"))), 0)
    assert (record.output_tokens, record.prompt_echoed) == (1, True)


def test_text_of_the_echoed_prompt_alone_is_not_the_first_token() -> None:
    exchange = _exchange((6_000, _text(_TEXT_PROMPT)), (6_500, _text(" it is")), (7_000, _text(" wide")))
    record = _recorder(_OF_TEXT, _TEXT, _words).record(exchange, 0)
    assert (record.output_tokens, record.prompt_echoed) == (3, True)
    assert record.token_times_ns == (6_500, 7_000)


def test_error_instead_of_an_answer() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(_exchange((6_000, _error("input_ids is too long"))), 0)
    assert (record.outcome, record.error) == (Outcome.SERVER_ERROR, "input_ids is too long")
    assert (record.token_times_ns, record.done_ns, record.sent_ns) == ((), _DONE_NS, _SENT_NS)
    assert (record.server_counted_input, record.has_reasoning) == (None, None)  # nothing was answered


def test_error_after_some_tokens_keeps_them() -> None:
    exchange = _exchange((6_000, _ids(7)), (6_500, _ids(8)), (6_600, _error("the engine failed")))
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(exchange, 0)
    assert (record.outcome, record.error) == (Outcome.SERVER_ERROR, "the engine failed")
    assert (record.token_times_ns, record.output_tokens) == ((6_000, 6_500), 2)


@pytest.mark.parametrize(
    "words", ["Exceeds maximum queue size", "Maximum queue size of 8 reached", "exceeds maximum queue size"]
)
def test_full_server_is_distinguished_from_a_failing_one(words: str) -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((6_000, _error(f"[UNAVAILABLE] {words}"))), 0)
    assert record.outcome is Outcome.REFUSED
    assert words in (record.error or "")


def test_error_of_the_server_is_reported_rather_than_that_of_the_transport() -> None:
    exchange = _exchange((6_000, _error("bad request")), failure=Outcome.STREAM_CUT, error="UNAVAILABLE: Socket closed")
    record = _recorder(_PROMPT_OF_3, _CORE).record(exchange, 0)
    assert (record.outcome, record.error) == (Outcome.SERVER_ERROR, "bad request")


@pytest.mark.parametrize("failure", [Outcome.TIMEOUT, Outcome.STREAM_CUT, Outcome.CANCELLED, Outcome.CONNECT, Outcome.REFUSED])
def test_transport_failure_keeps_the_partial_answer(failure: Outcome) -> None:
    exchange = _exchange((6_000, _ids(7)), (6_500, _ids(8, 9)), failure=failure, error="the error of gRPC")
    record = _recorder(_PROMPT_OF_3, _CORE | _EXCLUDE).record(exchange, 0)
    assert (record.outcome, record.error) == (failure, "the error of gRPC")
    assert (record.token_times_ns, record.token_counts, record.output_tokens) == ((6_000, 6_500), (1, 2), 3)


def test_transport_failure_before_any_response_has_no_token_and_no_source() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange(failure=Outcome.CONNECT, error="refused"), 0)
    assert (record.outcome, record.token_times_ns, record.output_tokens_source) == (Outcome.CONNECT, (), None)
    assert record.prompt_echoed is None
    assert not record.output_tokens


def test_bytes_that_are_no_message_are_malformed() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((6_000, _ids(7)), (6_500, b"\xff\xff\xff")), 3)
    assert record.outcome is Outcome.MALFORMED
    assert record.error
    assert (record.sent_ns, record.done_ns, record.worker) == (_SENT_NS, _DONE_NS, 3)


def test_a_fault_of_ours_in_reading_an_answer_is_recorded_and_costs_no_other_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(client: TritonGrpcClient, body: bytes) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(TritonGrpcClient, "decode", broken)
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((6_000, _ids(7))), 3)
    assert record.outcome is Outcome.LOST
    assert record.error == "the client failed to decode the answer: ZeroDivisionError('ours')"
    assert (record.sent_ns, record.done_ns, record.worker) == (_SENT_NS, _DONE_NS, 3)


@pytest.mark.parametrize(
    "outputs",
    [
        {"output_ids": b"\x01\x02\x03"},  # INT32 in 3 bytes
        {"text_output": b"\x01\x00"},  # a length in 2 bytes
        {"text_output": struct.pack("<I", 1) + b"\xff"},  # not UTF-8
    ],
)
def test_message_with_a_broken_tensor_is_malformed(outputs: dict[str, bytes]) -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((6_000, _body(outputs))), 0)
    assert record.outcome is Outcome.MALFORMED


def _marked(*ids: int, request_id: str = "0", final: bool = False) -> bytes:
    message = service_pb2.ModelStreamInferResponse.FromString(_ids(*ids))
    message.infer_response.id = request_id
    message.infer_response.parameters["triton_final_response"].bool_param = final
    body: bytes = message.SerializeToString()
    return body


def test_response_to_another_request_is_malformed_and_its_tokens_are_not_counted() -> None:
    exchange = _exchange((6_000, _marked(7)), (6_500, _marked(8, request_id="4")), (7_000, _marked(9, final=True)))
    record = _recorder(_PROMPT_OF_3, _CORE).record(exchange, 0)
    assert (record.outcome, record.output_tokens, record.token_times_ns) == (Outcome.MALFORMED, None, ())
    assert record.error == "a response to request '4' is in the answer to request 0"


def test_response_behind_the_last_one_is_malformed() -> None:
    exchange = _exchange((6_000, _marked(7)), (6_500, _marked(8, final=True)), (7_000, _marked(8, final=True)))
    record = _recorder(_PROMPT_OF_3, _CORE).record(exchange, 0)
    assert (record.outcome, record.output_tokens) == (Outcome.MALFORMED, None)
    assert record.error == "a response came after the one that the server marked as final"
    exchange = _exchange((6_000, _marked(7, final=True)), (6_500, _marked(8)), (7_000, _marked(8)))
    record = _recorder(_PROMPT_OF_3, _CORE).record(exchange, 0)
    assert record.error == "2 responses came after the one that the server marked as final"


def test_all_requests_whose_responses_came_are_named() -> None:
    exchange = _exchange((6_000, _marked(7, request_id="9")), (6_500, _marked(8, request_id="4")))
    error = _recorder(_PROMPT_OF_3, _CORE).record(exchange, 0).error
    assert error == "a response to request '4', '9' is in the answer to request 0"


def test_an_answer_without_a_mark_of_its_last_response_is_done() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((6_000, _marked(7)), (6_500, _marked(8))), 0)
    assert (record.outcome, record.output_tokens) == (Outcome.DONE, 2)


def test_answer_that_ends_with_its_last_response_is_done() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange((6_000, _marked(7)), (6_500, _marked(8, final=True))), 0)
    assert (record.outcome, record.output_tokens) == (Outcome.DONE, 2)


def test_end_without_any_response_is_malformed() -> None:
    record = _recorder(_PROMPT_OF_3, _CORE).record(_exchange(), 0)
    assert (record.outcome, record.error) == (Outcome.MALFORMED, "the server ended its answer without a response")


def test_request_that_was_never_sent_is_known_by_its_schedule_alone() -> None:
    assert _recorder(_PROMPT_OF_3, _CORE).unsent(0, _OFFSET_NS, Outcome.LOST, "its worker died") == Record(
        index=0,
        outcome=Outcome.LOST,
        scheduled_ns=_OFFSET_NS,
        requested_output_tokens=4,
        input_tokens=3,
        ignore_eos=True,
        error="its worker died",
        session="s",
        requested_input_tokens=3,
    )


@pytest.mark.parametrize(("made_for", "requested"), [(5, 5), (None, 3)])
def test_the_length_that_a_prompt_was_made_for_is_requested_and_not_that_of_its_text(
    made_for: int | None, requested: int
) -> None:
    record = _recorder(replace(_PROMPT_OF_3, requested_input_tokens=made_for), _CORE).unsent(0, 0, Outcome.LOST, None)
    assert (record.requested_input_tokens, record.input_tokens) == (requested, 3)


# ---- text with a count of the tokens so far


def test_a_later_turn_that_was_not_sent_has_its_parent_its_own_time_and_its_cancellation() -> None:
    turns = (_PROMPT_OF_3, replace(_PROMPT_OF_3, cancel=CancelPoint(after_ns=70)))
    schedule = SessionSchedule(turns, (0, 60), (None, 0), (0, 5), 0)
    recorder = Recorder(summarise_schedule(schedule), _Chunks(()))  # type: ignore[arg-type]
    first, later = (recorder.unsent(index, _DUE_NS, Outcome.NOT_SENT, None) for index in (0, 1))
    assert (first.parent, first.planned_ns, first.cancel_after_ns) == (None, None, None)
    assert (later.parent, later.planned_ns, later.cancel_after_ns) == (0, 60, 70)


@dataclass
class _Chunks:
    """As much of a client as recording needs: a body is the number of a response, and ends as JSON does."""

    responses: tuple[Response, ...]
    excludes_prompt: bool = True

    def decode(self, body: bytes) -> Response:
        number = int(body.removesuffix(b"}"))
        if number == len(self.responses):
            raise MalformedResponseError("no such response")
        return self.responses[number]


_ROLE = Response(text="", opening=True)


def _of_chunks(
    *responses: Response, index: int = 0, count_tokens: CountTokens | None = len, broken: int = 0, error: str | None = None
) -> Record:
    """The record of request ``index``, whose responses, and then ``broken`` others, arrive at 1, 2, 3 … µs."""
    schedule = Schedule((_OF_TEXT,) * (index + 1), (_OFFSET_NS,) * (index + 1), seed=0)
    recorder = Recorder(summarise_schedule(schedule), _Chunks(responses), count_tokens)  # type: ignore[arg-type]
    arrivals = [1_000 * (number + 1) for number in range(len(responses) + broken)]
    bodies = [b"%d}" % number for number in range(len(responses) + broken)]
    return recorder.record(Exchange(index, 0, 0, 0, _DONE_NS, arrivals, bodies, None, error), 0)


def test_text_with_running_counts() -> None:
    record = _of_chunks(
        _ROLE,
        Response(text="The", server_tokens_so_far=1),
        Response(text=" sea", server_tokens_so_far=3),
        Response(server_tokens_so_far=3, server_input_tokens=12),
    )
    assert (record.token_times_ns, record.token_counts) == ((2_000, 3_000), (1, 2))
    assert (record.output_tokens, record.output_tokens_source) == (3, TokenSource.SERVER)
    assert (record.input_tokens, record.server_counted_input) == (12, True)
    assert record.text_tokens == len("The sea")
    assert (record.outcome, record.prompt_echoed) == (Outcome.DONE, False)


def test_text_whose_tokens_are_counted_at_the_end() -> None:
    """Three tokens in two chunks: which of them had two is unknown."""
    record = _of_chunks(_ROLE, Response(text="The"), Response(text=" sea"), Response(server_tokens_so_far=3))
    assert (record.token_times_ns, record.token_counts, record.output_tokens) == ((2_000, 3_000), None, 3)


@pytest.mark.parametrize("count", [1, 3])
def test_a_count_before_the_rest_of_an_answer_is_not_that_of_the_answer(count: int) -> None:
    """As a gateway sends it, that passes on the usage with which another protocol opens an answer."""
    opening, texts = Response(text="", opening=True, server_tokens_so_far=count), [Response(text="a")] * 5
    for responses in ((opening, *texts), (*texts[:2], Response(server_tokens_so_far=count), *texts[2:])):
        record = _of_chunks(*responses)
        assert (record.output_tokens, record.output_tokens_source) == (len("a" * 5), TokenSource.TEXT)
        assert (record.text_chunks, len(record.token_times_ns), record.token_counts) == (5, 5, None)
        counted = _of_chunks(*responses, Response(server_tokens_so_far=6))
        assert (counted.output_tokens, counted.output_tokens_source) == (6, TokenSource.SERVER)


@pytest.mark.parametrize(("counts", "end", "tokens"), [
    ((1, 1, 1), Response(text="", finish_reasons=("stop",), server_tokens_so_far=1), 4),
    ((1, 1, 1), Response(text="!", finish_reasons=("stop",), server_tokens_so_far=1), 4),
    ((1, 1, 1), Response(text="", finish_reasons=("stop",)), 3),
    ((3, 1, 4), Response(text="", finish_reasons=("stop",), server_tokens_so_far=0), 8),
    ((1, 1, 1), Response(server_tokens_so_far=5), 5),  # the whole answer's
    ((1, 1, 1), Response(text="", finish_reasons=("stop",), server_tokens_so_far=3), 3),  # so is this
    ((3, 1, 4), Response(text="", finish_reasons=("stop",), server_tokens_so_far=9), 9),
    ((1, 2, 3), Response(text="", finish_reasons=("stop",), server_tokens_so_far=4), 4),
    ((4, 4, 4), Response(text="", finish_reasons=("stop",), server_tokens_so_far=4), 4),  # the whole answer's in each
    ((1, 2, 2), Response(text="", finish_reasons=("stop",), server_tokens_so_far=2), 2),  # a token in two pieces
    ((1, 1), Response(text="", finish_reasons=("stop",)), 1),  # so is this, or two tokens
    ((4,) * 9, Response(text="", finish_reasons=("stop",), server_tokens_so_far=4), 4),
])  # fmt: skip
def test_counts_of_each_piece_alone_are_added(counts: tuple[int, ...], end: Response, tokens: int) -> None:
    pieces = [Response(text="a", server_tokens_so_far=count) for count in counts]
    record = _of_chunks(_ROLE, *pieces, end)
    assert (record.output_tokens, record.output_tokens_source) == (tokens, TokenSource.SERVER)
    assert record.token_counts is None or sum(record.token_counts) == tokens


def test_counts_of_each_piece_alone_are_those_of_its_time() -> None:
    record = _of_chunks(_ROLE, *(Response(text="a", server_tokens_so_far=count) for count in (3, 1, 4)))
    assert (record.token_times_ns, record.token_counts) == ((2_000, 3_000, 4_000), (3, 1, 4))


def test_a_count_of_no_tokens_beside_text_is_none() -> None:
    record = _of_chunks(Response(text="The"), Response(text=" sea"), Response(server_tokens_so_far=0))
    assert (record.output_tokens, record.output_tokens_source) == (len("The sea"), TokenSource.TEXT)
    empty = _of_chunks(Response(text=""), Response(server_tokens_so_far=0))
    assert (empty.output_tokens, empty.output_tokens_source) == (0, TokenSource.SERVER)


@pytest.mark.parametrize(("total", "chunks"), [(3, 3), (2, 2), (None, 2)])
def test_an_empty_chunk_at_the_end_is_one_where_the_server_s_total_has_it(total: int | None, chunks: int) -> None:
    end = Response(text="", finish_reasons=("stop",))
    record = _of_chunks(_ROLE, Response(text="The"), Response(text=" sea"), end, Response(server_tokens_so_far=total))
    assert (record.text_chunks, record.empty_chunks) == (chunks, 0)


def test_every_field_of_an_answer_of_chunks() -> None:
    """The server counts 4 tokens in three pieces, of which one has no text, and its answer lacks its last mark."""
    responses = (
        _ROLE,
        Response(text="The"),
        Response(text=""),
        Response(text=" sea", finish_reasons=("length",)),
        Response(server_tokens_so_far=4, server_input_tokens=12, server_cached_tokens=5),
    )
    recorder = Recorder(summarise_schedule(Schedule((_OF_TEXT,), (_OFFSET_NS,), seed=0)), _Chunks(responses), len)  # type: ignore[arg-type]
    arrivals, bodies = [6_000, 6_100, 6_200, 6_300, 6_400], [b"%d}" % number for number in range(5)]
    exchange = Exchange(
        0, _DUE_NS, _RELEASED_NS, _SENT_NS, _DONE_NS, arrivals, bodies, None, "no [DONE]",
        connect_ns=20, router_ns=30, target=1, written_ns=5_150, head_ns=5_950,
    )  # fmt: skip
    assert recorder.record(exchange, 3) == Record(
        index=0,
        outcome=Outcome.DONE,
        scheduled_ns=_DUE_NS,
        requested_output_tokens=_OF_TEXT.output_tokens,
        released_ns=_RELEASED_NS,
        sent_ns=_SENT_NS,
        done_ns=_DONE_NS,
        connect_ns=20,
        router_ns=30,
        written_ns=5_150,
        head_ns=5_950,
        token_times_ns=(6_100, 6_300),
        token_counts=None,
        text_chunks=3,
        empty_chunks=1,
        input_tokens=12,
        server_counted_input=True,
        cached_input_tokens=5,
        requested_input_tokens=_OF_TEXT.input_tokens,
        output_tokens=4,
        output_tokens_source=TokenSource.SERVER,
        text_tokens=7,
        prompt_echoed=False,
        ignore_eos=_OF_TEXT.ignore_eos,
        has_reasoning=False,
        finish_reason="length",
        end_marker_missing=True,
        worker=3,
        target=1,
        session=_OF_TEXT.session,
    )


@pytest.mark.parametrize(
    ("reasons", "choices", "found"),
    [
        ([("stop",)], 1, "stop"),
        ([("stop",)], 2, None),
        ([("stop",), ("length",)], 2, "stop"),
        ([("length", "stop")], 2, "length"),
        ([()], 1, None),
    ],
)
def test_an_answer_ends_when_each_of_its_choices_has_a_finish_reason(
    reasons: list[tuple[str, ...]], choices: int, found: str | None
) -> None:
    record = _of_chunks(*(Response(text="a", finish_reasons=of_chunk, choices=choices) for of_chunk in reasons))
    assert (record.outcome, record.finish_reason, record.end_marker_missing) == (Outcome.DONE, found, False)
    lacks_end = _of_chunks(*(Response(text="a", finish_reasons=of_chunk, choices=choices) for of_chunk in reasons), error="cut")
    assert (lacks_end.outcome, lacks_end.error) == ((Outcome.STREAM_CUT, "cut") if found is None else (Outcome.DONE, None))
    assert lacks_end.end_marker_missing


@pytest.mark.parametrize(
    ("texts", "end", "hidden", "counts", "chunks"),
    [
        (2, Response(server_tokens_so_far=10, server_reasoning_tokens=8), 8, (9, 1), 2),
        (1, Response(server_tokens_so_far=10, server_reasoning_tokens=8), 8, None, 1),  # two tokens in one text
        (3, Response(server_tokens_so_far=10, server_reasoning_tokens=8), None, None, 3),  # more texts than other tokens
        (2, Response(server_tokens_so_far=2, server_reasoning_tokens=0), 0, (1, 1), 2),
        (2, Response(server_tokens_so_far=10), None, None, 2),
        (2, Response(server_reasoning_tokens=8), None, None, 2),  # of an unknown number
    ],
)
def test_reasoning_that_is_counted_and_not_sent_is_hidden(
    texts: int, end: Response, hidden: int | None, counts: tuple[int, ...] | None, chunks: int
) -> None:
    record = _of_chunks(_ROLE, *[Response(text="a")] * texts, end, count_tokens=None)
    assert (record.hidden_tokens, record.output_tokens) == (hidden, end.server_tokens_so_far)
    assert (record.token_counts, record.text_chunks, record.empty_chunks) == (counts, chunks, 0)


def test_reasoning_that_was_sent_is_not_hidden() -> None:
    """Its three tokens came, in a text of their own."""
    end = Response(server_tokens_so_far=5, server_reasoning_tokens=3)
    record = _of_chunks(_ROLE, Response(text="aaa", reasoning_characters=3), Response(text="b"), end)
    assert (record.hidden_tokens, record.output_tokens, record.token_counts) == (None, 5, None)
    assert (record.has_reasoning, record.first_output_ns) == (True, 3_000)


def test_reasoning_is_among_the_counts_of_each_piece_alone() -> None:
    pieces = [Response(text="a", server_tokens_so_far=count) for count in (3, 1, 4)]
    record = _of_chunks(_ROLE, *pieces, Response(text="", server_tokens_so_far=0, server_reasoning_tokens=2))
    assert (record.hidden_tokens, record.output_tokens, record.token_counts) == (None, 8, (3, 1, 4))


def test_the_last_count_of_reasoning_is_that_of_the_answer() -> None:
    pieces = [Response(text="a", server_reasoning_tokens=1), Response(text="b")]
    record = _of_chunks(*pieces, Response(server_tokens_so_far=9, server_reasoning_tokens=7))
    assert (record.hidden_tokens, record.token_counts) == (7, (8, 1))


def test_a_chunk_that_names_the_role_carries_no_token_whatever_its_count() -> None:
    pieces = [Response(text="a", server_tokens_so_far=1)] * 3
    role = Response(text="", opening=True, server_tokens_so_far=1)
    for count, counts in ((0, (1, 1, 1)), (3, (1, 1, 1)), (4, (1, 1, 1, 1))):
        record = _of_chunks(role, *pieces, Response(text="", finish_reasons=("stop",), server_tokens_so_far=count))
        assert (record.token_times_ns[0], record.token_counts, record.output_tokens) == (2_000, counts, sum(counts))


@pytest.mark.parametrize(("index", "checked"), [(0, True), (1, False), (15, False), (16, True), (17, False)])
def test_the_text_of_one_request_in_16_is_counted_beside_the_server(index: int, checked: bool) -> None:
    chunks = (Response(text="The", server_tokens_so_far=1), Response(text=" sea", server_tokens_so_far=2))
    assert _of_chunks(*chunks, index=index).text_tokens == (7 if checked else None)
    assert _of_chunks(*chunks, index=index, count_tokens=None).text_tokens is None


def test_an_answer_without_text_has_no_text_to_count() -> None:
    record = _of_chunks(Response(text="", server_tokens_so_far=1), Response(text="", server_tokens_so_far=2))
    assert (record.output_tokens, record.text_tokens) == (2, None)


def test_what_is_wrong_with_a_malformed_response_is_recorded() -> None:
    record = _of_chunks(Response(text="The", server_tokens=1), broken=1)
    assert (record.outcome, record.error, record.output_tokens) == (Outcome.MALFORMED, "no such response", None)


# ---- reasoning


def _thought(text: str, reasoning: int) -> Response:
    return Response(text=text, server_tokens=1, reasoning_characters=reasoning)


@pytest.mark.parametrize(
    ("responses", "has_reasoning", "first_output_ns"),
    [
        ([_thought("It", 0), _thought(" is", 0)], False, None),
        ([_thought("Let", 3), _thought(" me", 3), _thought("It", 0), _thought(" is", 0)], True, 3_000),
        ([_thought("Let", 3), _thought("meIt", 2), _thought(" is", 0)], True, 2_000),  # the answer begins in the second
        ([_thought("Let", 3), _thought("me\n\n", 2), _thought("\n", 0), _thought("It", 0)], True, 4_000),  # no white space
        ([_thought("Let", 3), Response(server_tokens=1), _thought("It", 0)], True, 3_000),  # one without text
        ([_thought("Let", 3), _thought(" me", 3)], True, None),
    ],
)
def test_the_first_text_besides_reasoning(responses: list[Response], has_reasoning: bool, first_output_ns: int | None) -> None:
    record = _of_chunks(*responses)
    assert (record.has_reasoning, record.first_output_ns) == (has_reasoning, first_output_ns)
    assert record.token_times_ns[0] == 1_000


def test_the_cached_tokens_of_a_prompt_are_those_of_the_first_response_that_counts_them() -> None:
    counted = Response(text="b", server_input_tokens=9, server_cached_tokens=8)
    assert _of_chunks(Response(text="a"), counted).cached_input_tokens == 8
    assert (
        _of_chunks(Response(text="a"), Response(text="b", server_input_tokens=9, server_cached_tokens=0)).cached_input_tokens
        == 0
    )
    assert _of_chunks(Response(text="a")).cached_input_tokens is None


def test_the_times_of_the_server_are_those_of_the_last_response_that_has_any() -> None:
    first, last = ServerTimes(3, 5, 0, 100), ServerTimes(3, 5, 40, 100)
    record = _of_chunks(
        Response(text="a", server_tokens=1, server_times=first),
        Response(text="b", server_tokens=1, server_times=last),
        Response(server_input_tokens=9),
    )
    found = (record.server_arrival_ns, record.server_queue_ns, record.server_prefill_ns, record.server_decode_ns)
    assert found == (100, 3, 5, 40)
    without = _of_chunks(Response(text="a", server_tokens=1))
    assert (without.server_arrival_ns, without.server_queue_ns) == (None, None)

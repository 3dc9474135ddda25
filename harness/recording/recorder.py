"""The recorder: decodes raw exchanges to records, after the hot loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

from msgspec.structs import asdict, replace

from bench_records.record import Outcome, Record, TokenSource
from harness.clients.protocol import Client, MalformedResponseError, Response
from harness.clients.server_times import ServerTimes
from harness.journal.worker_journal import Exchange
from harness.recording.accumulated_text import in_pieces
from harness.recording.own_counts import own_counts
from harness.recording.schedule_summary import RequestSummary, ScheduleSummary, SessionTimes
from harness.recording.token_attribution import attribute_each, attribute_tokens, count_text_chunks

_LONGEST_ERROR = 2_000  # characters
_MIN_ECHO_CHARACTERS = 20  # no model repeats so much of a prompt by chance
_CHECKED_ONE_IN = 16  # answers are tokenised again, to check the server's count: 7 µs a token

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class TimedResponses:
    """Responses and their arrival times."""

    times_ns: Sequence[int]
    responses: Sequence[Response]

    def without(self, excluded: Sequence[bool]) -> TimedResponses:
        """The responses of which ``excluded`` is False."""
        if True not in excluded:
            return self
        kept = [number for number, is_excluded in enumerate(excluded) if not is_excluded]
        return TimedResponses([self.times_ns[number] for number in kept], [self.responses[number] for number in kept])

    def times_of(self, selectors: Sequence[object]) -> tuple[int, ...]:
        """The arrival times of the responses whose selector is true."""
        return tuple(self.times_ns) if all(selectors) else tuple(compress(self.times_ns, selectors))


@dataclass(frozen=True, slots=True)
class Recorder:
    """Makes records. ``count_tokens`` counts the tokens of a text where the server did not; None leaves them unknown.

    ``client`` is that of the first target, and decodes the answers of all, which serve one model; ``further`` are the
    ``expects_finish_reason`` of the clients of other targets.
    """

    schedule: ScheduleSummary
    client: Client
    count_tokens: CountTokens | None = None
    further: tuple[bool | None, ...] = ()

    @property
    def expect_finish_reason(self) -> frozenset[int]:
        """The targets that were seen to send one before the run."""
        return frozenset(target for target, sends in enumerate((self.client.expects_finish_reason, *self.further)) if sends)

    def record(self, exchange: Exchange, worker: int) -> Record:
        """The record of an exchange."""
        request = self.schedule.requests[exchange.index]
        started = replace(
            self.unsent(exchange.index, exchange.due_ns, Outcome.DONE, None),
            released_ns=exchange.released_ns,
            sent_ns=exchange.sent_ns,
            done_ns=exchange.done_ns,
            connect_ns=exchange.connect_ns,
            router_ns=exchange.router_ns,
            worker=worker,
            target=exchange.target,
            written_ns=exchange.written_ns,
            head_ns=exchange.head_ns,
        )
        try:
            responses = in_pieces(list(map(self.client.decode, exchange.whole_bodies)))
        except MalformedResponseError as error:
            return replace(started, outcome=Outcome.MALFORMED, error=str(error))
        except Exception as error:  # a bug in the client must not cost the records of all others
            return replace(started, outcome=Outcome.LOST, error=f"the client failed to decode the answer: {error!r}")
        finish_reason = _finish_reason(responses)
        outcome, problem = _outcome(exchange, responses, finish_reason)
        if outcome is Outcome.MALFORMED:
            return replace(started, outcome=outcome, error=problem)
        # A response of zero tokens is an answer, too: its first token ended the sequence.
        answered = TimedResponses(exchange.response_ns[: len(responses)], responses).without(
            [response.error is not None for response in responses]
        )
        has_reasoning, first_output_ns = _reasoning(answered)
        return replace(
            self._with_tokens(started, request, answered),
            outcome=outcome,
            error=problem,
            has_reasoning=has_reasoning,
            first_output_ns=first_output_ns,
            finish_reason=finish_reason,
            end_marker_missing=exchange.failure is None and exchange.error is not None,
            **_server_times(responses),
        )

    def unsent(self, index: int, due_ns: int, outcome: Outcome, error: str | None) -> Record:
        """The record of a request of which only the due time is known."""
        request, times = self.schedule.requests[index], self.schedule.times
        parent, planned_ns = times.of_later_turn(index) if isinstance(times, SessionTimes) else (None, None)
        made_for = request.requested_input_tokens
        return Record(
            index=index,
            outcome=outcome,
            scheduled_ns=due_ns,
            requested_output_tokens=request.output_tokens,
            input_tokens=request.input_tokens,
            requested_input_tokens=request.input_tokens if made_for is None else made_for,
            ignore_eos=request.ignore_eos,
            error=error,
            session=request.session,
            parent=parent,
            planned_ns=planned_ns,
            traffic_class=request.traffic_class,
            cancel_after_ns=request.cancel_after_ns,
            cancel_after_tokens=request.cancel_after_tokens,
        )

    def _with_tokens(self, record: Record, request: RequestSummary, answered: TimedResponses) -> Record:
        if not answered.responses:
            return record
        content = answered.without(_are_markers(answered.responses))
        answered = content if content.responses else answered
        responses = answered.responses
        echoed = _echoed(request, responses[_first_with_content(responses)], self.client.excludes_prompt)
        counts = _counts(responses, request.ids.length if echoed and request.ids is not None else 0)
        if counts is None:
            return self._with_text(record, request, answered, echoed)
        of_server = _count_of_server(responses)
        return replace(
            record,
            token_times_ns=answered.times_of(counts),
            token_counts=tuple(count for count in counts if count),
            output_tokens=sum(counts) if of_server is None else of_server,
            output_tokens_source=TokenSource.IDS if of_server is None else TokenSource.SERVER,
            **_input_count(record, responses),
            prompt_echoed=echoed,
            text_tokens=self._checked(record.index, [r.text for r in responses if r.text and not echoed]),
        )

    def _with_text(self, record: Record, request: RequestSummary, answered: TimedResponses, echoed: bool | None) -> Record:
        """Complete a record whose responses have no token counts: those with text carry tokens, and the total is the server's
        count, or that of the client's tokenizer, which ``chunk_counts.py`` replaces where the run shows a better one."""
        responses = answered.responses
        texts = [response.text or "" for response in responses]
        if echoed and request.text is not None:
            first = _first_with_content(responses)
            texts[first] = texts[first][request.text.length :]
        own = own_counts(responses)
        of_server = _last_count(responses) if own is None else sum(own)
        if of_server == 0 and any(texts):  # the server does not count, or its count was cut off
            of_server = None
        hidden = None if own is not None else _hidden_tokens(responses, of_server)
        attribution = attribute_tokens(responses, texts, of_server, hidden or 0) if own is None else attribute_each(own)
        text_chunks, empty_chunks = count_text_chunks(responses, None if of_server is None else of_server - (hidden or 0))
        timed = replace(
            record,
            token_times_ns=answered.times_of(attribution.carries_tokens),
            token_counts=attribution.counts,
            **_input_count(record, responses),
            prompt_echoed=echoed,
            text_chunks=text_chunks,
            empty_chunks=empty_chunks,
        )
        if of_server is not None:
            return replace(
                timed,
                output_tokens=of_server,
                output_tokens_source=TokenSource.SERVER,
                hidden_tokens=hidden,
                text_tokens=self._checked(record.index, texts),
            )
        if self.count_tokens is None:
            return timed
        return replace(timed, output_tokens=self.count_tokens("".join(texts)), output_tokens_source=TokenSource.TEXT)

    def _checked(self, index: int, texts: Sequence[str]) -> int | None:
        """The client's count of a text that the server counted, for some of the requests; None for others and without text."""
        if self.count_tokens is None or index % _CHECKED_ONE_IN or not any(texts):
            return None
        return self.count_tokens("".join(texts))


def _counts(responses: Sequence[Response], skip: int) -> list[int] | None:
    """The generated tokens in each response; None where one of them has neither ids nor a count.

    Ids are counted, after an echo of ``skip`` tokens, so that the server's own count can be checked against them; for a
    response without ids the server's count is used.
    """
    counts: list[int] = []
    for response in responses:
        if response.token_ids is not None:
            count = len(response.token_ids)
            counts.append(max(0, count - skip))
            skip = max(0, skip - count)
        elif response.server_tokens is not None:
            counts.append(response.server_tokens)
        else:
            return None
    return counts


def _count_of_server(responses: Sequence[Response]) -> int | None:
    """The server's count of the answer's tokens: the sum of those of all responses, or the last of all so far; None where it
    sent neither.
    """
    counts = [response.server_tokens for response in responses if response.server_tokens is not None]
    if len(counts) == len(responses):
        return sum(counts)
    return _last_count(responses)


def _last_count(responses: Sequence[Response]) -> int | None:
    """The server's last count of all tokens so far; None where it sent none, or where more of the answer came after it."""
    for response in reversed(responses):
        if response.server_tokens_so_far is not None:
            return response.server_tokens_so_far
        if response.text or response.token_ids:
            return None
    return None


def _hidden_tokens(responses: Sequence[Response], total: int | None) -> int | None:
    """The tokens among the ``total`` that the server calls reasoning and did not send; None where it sent reasoning, or more
    texts than it has other tokens.
    """
    reasoning = next((r.server_reasoning_tokens for r in reversed(responses) if r.server_reasoning_tokens is not None), None)
    if reasoning is None or total is None or any(response.reasoning_characters for response in responses):
        return None
    return reasoning if sum(bool(response.text) for response in responses) <= total - reasoning else None


def _outcome(exchange: Exchange, responses: Sequence[Response], finish_reason: str | None) -> tuple[Outcome, str | None]:
    """An answer without a finish_reason counts as done here: ``completeness.py`` knows what the server sends."""
    disorder = _disorder(exchange.index, responses)
    if disorder is not None:
        return Outcome.MALFORMED, disorder
    wrong = next((response for response in responses if response.error is not None), None)
    if wrong is not None and wrong.error is not None:
        return (Outcome.REFUSED if wrong.refused else Outcome.SERVER_ERROR), wrong.error[:_LONGEST_ERROR]
    if exchange.failure is Outcome.WITHDRAWN:
        return Outcome.WITHDRAWN, None
    if exchange.failure is not None:
        return exchange.failure, exchange.error
    if exchange.error is not None and finish_reason is None:  # nothing shows that the answer is complete
        return Outcome.STREAM_CUT, exchange.error
    if not responses:
        return Outcome.MALFORMED, "the server ended its answer without a response"
    return Outcome.DONE, None


def _finish_reason(responses: Sequence[Response]) -> str | None:
    """The finish reason of the first choice that ended; None where one of the choices has none."""
    reasons = [reason for response in responses for reason in response.finish_reasons]
    choices = max((response.choices for response in responses), default=1)
    return reasons[0] if len(reasons) >= choices else None


def _disorder(index: int, responses: Sequence[Response]) -> str | None:
    """The reason why these are not the responses to this request in order; None where they are."""
    foreign = {response.request_id for response in responses} - {None, str(index)}
    if foreign:
        return f"a response to request {', '.join(sorted(map(repr, foreign)))} is in the answer to request {index}"
    finals = [response.final for response in responses]
    trailing = len(responses) - finals.index(True) - 1 if True in finals else 0
    after = "a response came" if trailing == 1 else f"{trailing} responses came"
    return f"{after} after the one that the server marked as final" if trailing else None


def _are_markers(responses: Sequence[Response]) -> list[bool]:
    """Which responses have no content at all, so that they have no tokens, rather than an unknown number."""
    return [
        response.text is None
        and response.token_ids is None
        and response.server_tokens is None
        and response.server_tokens_so_far is None
        for response in responses
    ]


def _reasoning(answered: TimedResponses) -> tuple[bool | None, int | None]:
    """Whether the answer has reasoning (None: there is no answer), and then the arrival of the first text besides it.

    White space between the two is not visible, so it is no text here. A response has its reasoning before its other text.
    """
    if not answered.responses:
        return None, None
    if not any(response.reasoning_characters for response in answered.responses):
        return False, None
    timed = zip(answered.times_ns, answered.responses, strict=True)
    return True, next((ns for ns, response in timed if (response.text or "")[response.reasoning_characters :].strip()), None)


def _input_count(record: Record, responses: Sequence[Response]) -> dict[str, int | bool | None]:
    """The fields of a record about the length of its prompt: the server's count, else the client's; and what was cached."""
    counted = next((r.server_input_tokens for r in responses if r.server_input_tokens), None)
    return {
        "input_tokens": counted or record.input_tokens,
        "server_counted_input": counted is not None,
        "cached_input_tokens": next((r.server_cached_tokens for r in responses if r.server_cached_tokens is not None), None),
    }


def _server_times(responses: Sequence[Response]) -> dict[str, int | None]:
    """The fields of a record that the server measured, from the last response that has any."""
    times = next((r.server_times for r in reversed(responses) if r.server_times is not None), ServerTimes())
    return {f"server_{name}": value for name, value in asdict(times).items()}


def _first_with_content(responses: Sequence[Response]) -> int:
    """The first response with text or ids, after those that only open the answer; 0 where none has any."""
    return next((number for number, response in enumerate(responses) if response.text or response.token_ids), 0)


def _echoed(request: RequestSummary, first: Response, excluded: bool) -> bool | None:
    """Whether the first response with content begins with the prompt; None where that is unknown.

    Where the request excluded the prompt from the answer (``excluded``), a beginning that equals the prompt is an echo only
    if it is unlikely to be generated: more tokens than requested, or a long text.
    """
    if first.token_ids is not None and request.ids is not None:
        return request.ids.begins_ids(first.token_ids) and (not excluded or len(first.token_ids) > request.output_tokens)
    if first.text is not None and request.text is not None:
        return request.text.begins_text(first.text) and (not excluded or request.text.length > _MIN_ECHO_CHARACTERS)
    return None

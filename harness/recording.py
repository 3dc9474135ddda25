"""From raw exchanges to records: everything that the hot loop left undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from harness.asked import Asked, AskedSchedule
from harness.clients.protocol import Client, MalformedResponseError, Response
from harness.journal import Exchange
from harness.records.record import Outcome, Record, TokenSource

_TELLING_CHARACTERS = 20  # no model repeats so much of a prompt by chance
_CHECKED_ONE_IN = 16  # answers whose text is tokenised again, to hold the server's count against: 7 µs a token

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Recorder:
    """Makes records. ``count_tokens`` counts the tokens of a text where the server did not; None leaves them unknown."""

    schedule: AskedSchedule
    client: Client
    count_tokens: CountTokens | None = None

    def record(self, exchange: Exchange, worker: int) -> Record:
        """The record of one exchange that took place."""
        request = self.schedule.requests[exchange.index]
        started = replace(
            self.unsent(exchange.index, exchange.due_ns, Outcome.DONE, None),
            released_ns=exchange.released_ns,
            sent_ns=exchange.sent_ns,
            done_ns=exchange.done_ns,
            worker=worker,
        )
        try:
            responses = [self.client.decode(body) for body in exchange.bodies]
        except MalformedResponseError as error:
            return replace(started, outcome=Outcome.MALFORMED, error=str(error))
        outcome, problem = _outcome(exchange, responses)
        if outcome is Outcome.MALFORMED:
            return replace(started, outcome=outcome, error=problem)
        # A row of zero tokens is an answer, too: a first token that ends the sequence.
        answered = [(ns, r) for ns, r in zip(exchange.response_ns, responses, strict=True) if r.error is None]
        return replace(self._with_tokens(started, request, answered), outcome=outcome, error=problem)

    def unsent(self, index: int, due_ns: int, outcome: Outcome, error: str | None) -> Record:
        """The record of a request of which nothing is known but when it was due."""
        request = self.schedule.requests[index]
        return Record(
            index=index,
            outcome=outcome,
            scheduled_ns=due_ns,
            requested_output_tokens=request.output_tokens,
            input_tokens=request.input_tokens,
            ignore_eos=request.ignore_eos,
            error=error,
            session=request.session,
        )

    def _with_tokens(self, record: Record, request: Asked, answered: Sequence[tuple[int, Response]]) -> Record:
        if not answered:
            return record
        answered = [(ns, response) for ns, response in answered if not _is_marker(response)] or answered
        echoed = _echoed(request, answered, self.client.excludes_prompt)
        skip = request.ids.length if echoed and request.ids is not None else 0
        counts: list[int | None] = []
        for _, response in answered:
            count = _count(response)
            if count is not None and response.server_tokens is None and skip:
                count, skip = max(0, count - skip), 0
            counts.append(count)
        if None not in counts:
            return replace(
                record,
                token_times_ns=tuple(ns for (ns, _), count in zip(answered, counts, strict=True) if count),
                token_counts=tuple(count for count in counts if count),
                output_tokens=sum(count for count in counts if count),
                output_tokens_source=_source(answered),
                input_tokens=_server_input_tokens(answered) or record.input_tokens,
                prompt_echoed=echoed,
                text_tokens=self._checked(record.index, [r.text for _, r in answered if r.text and not echoed]),
            )
        return self._with_text(record, request, answered, echoed)

    def _with_text(
        self, record: Record, request: Asked, answered: Sequence[tuple[int, Response]], echoed: bool | None
    ) -> Record:
        """Where responses do not say their tokens: one with text carries some, and the server counts the whole, or we do."""
        texts = [response.text or "" for _, response in answered]
        if echoed and request.text is not None:
            texts[0] = texts[0][request.text.length :]
        of_server = next((r.server_tokens_so_far for _, r in reversed(answered) if r.server_tokens_so_far is not None), None)
        timed = replace(
            record,
            token_times_ns=tuple(ns for (ns, _), text in zip(answered, texts, strict=True) if text),
            input_tokens=_server_input_tokens(answered) or record.input_tokens,
            prompt_echoed=echoed,
        )
        if of_server is not None:
            return replace(
                timed,
                token_counts=_counts_of_text(answered, texts, of_server),
                output_tokens=of_server,
                output_tokens_source=TokenSource.SERVER,
                text_tokens=self._checked(record.index, texts),
            )
        if self.count_tokens is None:
            return timed
        return replace(timed, output_tokens=self.count_tokens("".join(texts)), output_tokens_source=TokenSource.TEXT)

    def _checked(self, index: int, texts: Sequence[str]) -> int | None:
        """Our own count of a text that the server counted, for some of the requests; None for the others and for no text."""
        if self.count_tokens is None or index % _CHECKED_ONE_IN or not any(texts):
            return None
        return self.count_tokens("".join(texts))


def _counts_of_text(answered: Sequence[tuple[int, Response]], texts: Sequence[str], total: int) -> tuple[int, ...] | None:
    """The tokens of each response with text, where ``total`` leaves no choice: counts that ran along, or one token each."""
    so_far = [response.server_tokens_so_far for (_, response), text in zip(answered, texts, strict=True) if text]
    if len(so_far) == total:
        return (1,) * total
    known = [count for count in so_far if count is not None]
    counts = tuple(later - earlier for earlier, later in pairwise([0, *known]))
    return counts if len(known) == len(so_far) and sum(counts) == total and min(counts, default=0) > 0 else None


def _outcome(exchange: Exchange, responses: Sequence[Response]) -> tuple[Outcome, str | None]:
    disorder = _disorder(exchange.index, responses)
    if disorder is not None:
        return Outcome.MALFORMED, disorder
    for response in responses:
        if response.error is not None:
            return (Outcome.REFUSED if response.refused else Outcome.SERVER_ERROR), response.error
    if exchange.failure is not None:
        return exchange.failure, exchange.error
    if not responses:
        return Outcome.MALFORMED, "the server ended its answer without a response"
    return Outcome.DONE, None


def _disorder(index: int, responses: Sequence[Response]) -> str | None:
    """What shows that these are not the responses to this request, each once, or None."""
    for position, response in enumerate(responses):
        if response.request_id is not None and response.request_id != str(index):
            return f"a response to request {response.request_id!r} came in the answer to request {index}"
        if response.final and position < len(responses) - 1:
            return f"{len(responses) - 1 - position} responses came behind the one that the server called its last"
    return None


def _is_marker(response: Response) -> bool:
    """Whether a response tells nothing of an answer, so that its count is not unknown, but there is none."""
    return response.text is None and _count(response) is None and response.server_tokens_so_far is None


def _count(response: Response) -> int | None:
    if response.server_tokens is not None:
        return response.server_tokens
    return None if response.token_ids is None else len(response.token_ids)


def _source(answered: Sequence[tuple[int, Response]]) -> TokenSource | None:
    if not answered:
        return None
    return TokenSource.SERVER if answered[0][1].server_tokens is not None else TokenSource.IDS


def _server_input_tokens(answered: Sequence[tuple[int, Response]]) -> int | None:
    return next((r.server_input_tokens for _, r in answered if r.server_input_tokens is not None), None)


def _echoed(request: Asked, answered: Sequence[tuple[int, Response]], excluded: bool) -> bool | None:
    """Whether the first response begins with the prompt; None where that cannot be told.

    Where we asked the server to leave the prompt out (``excluded``), a beginning that equals the prompt is taken for
    an echo only if it cannot well be the model's own words: more tokens than were asked for, or a long text.
    """
    if not answered:
        return None
    first = answered[0][1]
    if first.token_ids is not None and request.ids is not None:
        return request.ids.begins_ids(first.token_ids) and (not excluded or len(first.token_ids) > request.output_tokens)
    if first.text is not None and request.text is not None:
        return request.text.begins_text(first.text) and (not excluded or request.text.length > _TELLING_CHARACTERS)
    return None

"""Findings about numbers that must agree with each other, whatever their sources."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.catalogue import E2E, ITL_COVERAGE, LATENCIES, TPOT, TTFT
from reports.metrics.in_flight import mean_in_system
from reports.metrics.latency import (
    answers_without_time_per_output_token,
    counted_gap_share,
    time_per_output_token_by_request_ms,
)
from reports.metrics.lengths import TEMPLATE_EDGE_TOKENS, Lengths, input_lengths
from reports.metrics.output_events import summed_token_counts
from reports.metrics.requests import Requests
from reports.metrics.waves import waves_of
from reports.metrics.windows import Window
from reports.render.counts import counted, percent
from reports.statistics.arrays import FloatArray

_INPUT_TOLERANCE = 0.01
_EDGE_TOKENS = 1  # of a prompt without a template, which a server may begin or end by a token of its own
_TEXT_TOLERANCE = 0.25
_TEXT_SHARE = 0.01
_TEXT_TOKENS = 200  # in fewer tokens, chance may exceed the tolerance
_TOKENS_BEYOND_INVALID = 0.01
_LEFT_OUT = 0.01
_LITTLE_TOLERANCE = 0.05
_LABELS = {metric.key: metric.label for metric in LATENCIES}
_LITTLE_FLOOR_S = 1e-3  # of a request: the client reads the end of an answer this much after its last token
_LITTLE_EDGES = 2.0  # latencies that the two ends of the window may cut


@dataclass(frozen=True)
class OutputLongerThanAsked(Finding):
    """A server may not exceed the requested length, so responses arrived twice, or the count includes more than output.

    Counts from text tokenised again are too inexact for this check.
    """

    requests: int
    tokens_beyond: float
    share_of_tokens: float

    code = "output_longer_than_asked"
    severities = (Severity.WARNING, Severity.INVALID)
    when = (
        f"answers have more tokens than requested; invalid above {_TOKENS_BEYOND_INVALID:.0%} of the tokens. "
        "Not checked where tokens are counted from text"
    )
    advices = (
        "Responses arrived twice, or the count includes what is not output (an echoed prompt): tokens/s are too high. Up to "
        "three tokens of some answers may also end a character that the last token began, as llama-cpp-python does.",
    )
    briefs = ("Answers too long: tokens/s are too high; see the report",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.requests
        beyond = requests.output_tokens - requests.requested_output_tokens
        longer = requests.done & (beyond > 0) & ~requests.counted_from_text  # NaN where unknown is not above 0
        if not longer.any():
            return None
        tokens_beyond = float(beyond[longer].sum())
        share = float(beyond[longer].sum() / np.nansum(requests.output_tokens[requests.done]))
        return cls(int(longer.sum()), tokens_beyond, share)

    @property
    def severity(self) -> Severity:
        return Severity.INVALID if self.share_of_tokens > _TOKENS_BEYOND_INVALID else Severity.WARNING

    def _sentence(self) -> str:
        return (
            f"{counted(self.requests, 'answer was', 'answers were')} longer than requested: "
            f"{counted(self.tokens_beyond, 'token')} too many, "
            f"{percent(self.share_of_tokens, 1, _TOKENS_BEYOND_INVALID)} of all."
        )


@dataclass(frozen=True)
class TokenCountsDisagree(Finding):
    requests: int
    share: float
    in_responses: float
    reported: float

    code = "token_counts_disagree"
    severities = (Severity.WARNING,)
    when = "the tokens of a request's responses do not sum to the count that the server reported"
    advices = (
        "Throughput counts the reported tokens. Check whether the server counts special tokens, or responses were lost.",
    )
    briefs = ("Token counts disagree: check what the server counts",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.requests
        streamed = summed_token_counts(requests)
        known = requests.done & ~np.isnan(streamed) & ~np.isnan(requests.output_tokens) & requests.has_tokens
        differ = known & (streamed != requests.output_tokens)
        if not differ.any():
            return None
        return cls(
            requests=int(differ.sum()),
            share=float(differ.sum() / known.sum()),
            in_responses=float(streamed[known].sum()),
            reported=float(requests.output_tokens[known].sum()),
        )

    def _sentence(self) -> str:
        return (
            f"The responses of {counted(self.requests, 'answer')} ({percent(self.share)}) do not sum to the reported token "
            f"count: {self.in_responses:,.0f} tokens in responses, {self.reported:,.0f} reported in all."
        )


@dataclass(frozen=True)
class TokenCountsUnknown(Finding):
    """The number of tokens of some chunks, or of all, is unknown, so ITL could only cover the others.

    The others are the chunks of answers that no front end joined, which are faster: their TPOT against that of all is the bias.
    ``untried``: no trial request asked the server for running counts, since the run had no warm-up.
    """

    share: float
    tpot_of_known_ms: float | None
    tpot_of_all_ms: float | None
    untried: bool = False

    code = "token_counts_unknown"
    severities = (Severity.NOTE,)
    when = (
        "chunks of several tokens, or of an unknown number, came without their counts; ITL is shown where the counts cover "
        f"{ITL_COVERAGE:.0%} of the gaps between chunks"
    )
    advices = (
        "ITL is not shown, since it would cover the faster answers alone; TPOT covers all answers. Servers that send running "
        "counts (vLLM: stream_options.continuous_usage_stats) have an ITL.",
        "ITL leaves out the other gaps; TPOT covers all answers.",
        "ITL is not shown; inter-chunk latency covers all chunks, and TPOT all answers of known length.",
        "No answer has a number of tokens, so there is no ITL, no TPOT and no token throughput. Give the model's tokenizer "
        "(--tokenizer), and the texts are counted.",
        "ITL is not shown: a run without warm-up requests sends no trial request, which finds whether the server sends running "
        "counts (vLLM does). With a warm-up there is an ITL if it does; TPOT covers all answers.",
    )
    briefs = (
        "No ITL, since chunks lack token counts: read TPOT",
        "ITL leaves out chunks without token counts: read TPOT",
        "No ITL, since chunks lack token counts: read TPOT",
        "No token counts: give --tokenizer, and texts are counted",
        "No ITL: only a run with a warm-up asks for token counts",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.requests
        share = counted_gap_share(requests) if facts.metrics.streamed else None
        if share is None or share == 1.0:
            return None
        tpot_ms = time_per_output_token_by_request_ms(requests)
        has_counts = ~np.isnan(summed_token_counts(requests))
        return cls(share, _mean_ms(tpot_ms[has_counts]), _mean_ms(tpot_ms), _untried(facts))

    @property
    def advice(self) -> str:
        if self.untried and self.share < ITL_COVERAGE and self.tpot_of_all_ms is not None:
            return self.advices[4]
        if not self.share:
            return self.advices[3 if self.tpot_of_all_ms is None else 2]
        return self.advices[self.share >= ITL_COVERAGE]

    def _sentence(self) -> str:
        if not self.share:
            return "The number of tokens of a chunk is unknown, for all chunks."
        text = f"The number of tokens is known for {percent(self.share, 1)} of the gaps between chunks"
        if self.tpot_of_known_ms is None or not self.tpot_of_all_ms:  # 0 where each answer came in one piece
            return f"{text}."
        bias = self.tpot_of_known_ms / self.tpot_of_all_ms - 1
        return f"{text}; the answers with known counts have a mean TPOT of {self.tpot_of_known_ms:.2f} ms, {bias:+.0%} to all."


def _untried(facts: RunFacts) -> bool:
    """Whether no trial request asked a server of OpenAI's protocols for running counts, since the run had no warm-up."""
    return facts.target.sends_finish_reason is False and facts.manifest.warm_up.requests == 0


@dataclass(frozen=True)
class TokensCountedFromText(Finding):
    """``done`` of the ``requests`` whose tokens were counted from their text succeeded; ``share`` is that of their tokens among
    those of all answers. ``ratio`` is what random tokens make when their text is tokenised again; None where it is unknown.
    ``untried`` as in TokenCountsUnknown.
    """

    requests: int
    done: int
    share: float
    ratio: float | None
    untried: bool = False

    code = "tokens_counted_from_text"
    severities = (Severity.NOTE, Severity.WARNING)
    when = (
        "nothing counted the output tokens of answers but the client's tokenizer, from their text: neither the server, nor "
        "chunks of one token each, as complete answers show them. A warning where these are more than "
        f"{_TEXT_SHARE:.0%} of the tokens. Failures count where there are several targets"
    )
    advices = (
        "Tokens/s and TPOT are estimates: text does not always encode to the tokens that it was made of. Compare them only "
        "between runs of the same server and prompts. TTFT, E2E latency and requests/s are not affected.",
        "Tokens/s are an estimate: text does not always encode to the tokens that it was made of. A cut answer lacks the count "
        "that the server sends at its end.",
        "Tokens/s are an estimate: text does not always encode to the tokens that it was made of. A run without warm-up "
        "requests sends no trial request, which finds whether the server sends running counts (vLLM does): use a warm-up.",
    )
    briefs = (
        "Tokens were counted from text: tokens/s and TPOT are estimates",
        "Tokens of cut answers were counted from text: tokens/s are estimates",
        "Tokens of cut answers were counted from text: use a warm-up",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.requests
        in_numbers = requests.done | requests.withdrawn
        if facts.targets:  # whose tokens are those of failures, too
            in_numbers |= requests.has_tokens
        from_text = requests.counted_from_text & requests.has_tokens & in_numbers
        if not from_text.any():
            return None
        share = float(requests.output_tokens[from_text].sum() / max(1.0, np.nansum(requests.output_tokens[in_numbers])))
        done = int((from_text & requests.done).sum())
        return cls(int(from_text.sum()), done, share, facts.target.retokenised_ratio, _untried(facts))

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self.share > _TEXT_SHARE else Severity.NOTE

    @property
    def advice(self) -> str:
        return self.advices[0 if self.done else 2 if self.untried else 1]

    def _sentence(self) -> str:
        cut = counted(self.requests, "answer that was cut off", "answers that were cut off")
        answers = counted(self.requests, "answer") if self.done else cut
        share = percent(self.share, 1, _TEXT_SHARE)
        text = f"The output tokens of {answers} were counted from text: {share} of all output tokens."
        if self.ratio is None or self.ratio < 1 + _TEXT_SHARE:
            return text
        return f"{text} Text of random tokens makes {self.ratio:.2f} times as many when it is tokenised again."


def _mean_ms(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


@dataclass(frozen=True)
class InputTokensDisagree(Finding):
    """Means over the answers whose prompt both sides counted; the server's own tokens (a chat template's) apart."""

    requests: int
    requested: float
    counted: float
    mean_deviation: float
    template_tokens: int

    code = "input_tokens_disagree"
    severities = (Severity.WARNING,)
    when = (
        f"the server's counts of prompt tokens differ from the requested ones by more than {_INPUT_TOLERANCE:.0%} and "
        f"{_EDGE_TOKENS} token on average, apart from the tokens of a chat template; with a template, by more than "
        f"{TEMPLATE_EDGE_TOKENS}: a prompt can merge with it at both ends"
    )
    advices = (
        "The load was not the requested one. Check whether --tokenizer_dir is the model's tokenizer, and whether the server "
        "truncates prompts or adds to them.",
    )
    briefs = ("Prompts have other lengths: check --tokenizer_dir",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        lengths = input_lengths(facts.requests, facts.target.template_tokens)
        if lengths is None or not _deviates(lengths):
            return None
        return cls(
            requests=lengths.requests,
            requested=lengths.mean_requested,
            counted=lengths.mean_actual,
            mean_deviation=lengths.mean_deviation,
            template_tokens=lengths.template_tokens,
        )

    def _sentence(self) -> str:
        apart = f", and {self.template_tokens} of its template" if self.template_tokens else ""
        return (
            f"Prompts of {self.requested:,.1f} tokens on average were requested; the server counted {self.counted:,.1f}{apart}."
            f" A prompt deviates by {self.mean_deviation:,.1f} tokens on average."
        )


def _deviates(lengths: Lengths) -> bool:
    edge_tokens = TEMPLATE_EDGE_TOKENS if lengths.template_tokens else _EDGE_TOKENS
    return lengths.deviation_share > _INPUT_TOLERANCE and lengths.mean_deviation > edge_tokens


@dataclass(frozen=True)
class AnswersLeftOut(Finding):
    """``shares`` of the successful answers that a metric should cover and cannot, by the key of the metric.

    ``latency_ratio`` is the mean time from send to end of the answers left out, over that of the others.
    """

    shares: dict[str, float]
    latency_ratio: float | None

    code = "answers_left_out"
    severities = (Severity.WARNING,)
    when = (
        f"a latency leaves out more than {_LEFT_OUT:.0%} of the successful answers: TTFT and E2E latency those without a "
        "token, TPOT those whose tokens came in one response or whose number is unknown"
    )
    advices = (
        "The metric covers the other answers alone. Find out why the answers that it leaves out have no token or no count, or "
        "arrive at once: a front end may join chunks, or answer requests without generation.",
    )
    briefs = ("Latencies leave out answers: see the report",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.requests
        left_out = {E2E: requests.done & ~requests.has_tokens}
        if facts.metrics.streamed:
            left_out[TTFT] = left_out[E2E]
            left_out[TPOT] = answers_without_time_per_output_token(requests)
        done = max(1, int(requests.done.sum()))
        shares = {metric: float(chosen.sum()) / done for metric, chosen in left_out.items()}
        at_once = facts.metrics.streamed and _all_come_at_once(requests)  # then there is no TPOT, and TTFT is E2E latency
        beyond = [
            metric
            for metric, share in shares.items()
            if share > _LEFT_OUT and (facts.metrics.latencies[metric] is not None or (metric is TPOT and at_once))
        ]
        if not beyond:
            return None
        outside = np.logical_or.reduce([left_out[metric] for metric in beyond])
        took_ns = requests.done_ns - requests.sent_ns
        ratio = None if outside.sum() == done else float(took_ns[outside].mean() / took_ns[requests.done & ~outside].mean())
        return cls({metric.key: shares[metric] for metric in beyond}, ratio)

    def _sentence(self) -> str:
        parts = ", ".join(f"{_LABELS[key]} {share:.1%}" for key, share in self.shares.items())
        text = f"Latencies leave out successful answers: {parts}"
        return (
            f"{text}."
            if self.latency_ratio is None
            else f"{text}. These took {self.latency_ratio:.2f} times as long as the others."
        )


def _all_come_at_once(requests: Requests) -> bool:
    """Whether each success of several tokens, of which there are some, came in one response."""
    several = requests.done & (requests.output_tokens >= 2)
    return bool(several.any() and (np.diff(requests.token_starts)[several] == 1).all())


@dataclass(frozen=True)
class TextTokensDisagree(Finding):
    """Over the answers whose text was tokenised again.

    Text does not always encode to the tokens it came from: random ones make more, and those outside of the tokenizer's
    vocabulary make none. So too many tokens in the text are compared with the ratio of random tokens, and too few disagree
    only where the answers did not come in as many chunks as tokens were reported.
    """

    requests: int
    in_text: float
    reported: float
    chunks: float

    code = "text_tokens_disagree"
    severities = (Severity.WARNING,)
    when = (
        f"the server's token counts differ by more than {_TEXT_TOLERANCE:.0%} from those of the returned texts tokenised again "
        f"(every 16th answer, where a tokenizer is known; at least {_TEXT_TOKENS} tokens). More tokens in the text are "
        "compared with the ratio of random tokens, fewer with the number of chunks as well"
    )
    advices = (
        "Throughput counts the reported tokens. Check whether --tokenizer_dir is the model's, and whether the server counts "
        "tokens that it does not send (hidden reasoning, a prompt).",
    )
    briefs = ("Tokens disagree with the text: check --tokenizer_dir",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.requests
        known = requests.done & ~np.isnan(requests.text_tokens) & ~np.isnan(requests.output_tokens)
        in_text, reported = float(requests.text_tokens[known].sum()), float(requests.output_tokens[known].sum())
        chunks = float(np.diff(requests.token_starts)[known].sum())
        least = (1 - _TEXT_TOLERANCE) * reported
        ratio = 1.0 if chunks > reported else max(1.0, facts.target.retokenised_ratio or 1.0)
        most = reported * ratio / (1 - _TEXT_TOLERANCE)
        if max(in_text, reported) < _TEXT_TOKENS or (max(in_text, chunks) >= least and in_text <= most):
            return None
        return cls(int(known.sum()), in_text, reported, chunks)

    def _sentence(self) -> str:
        return (
            f"The server reported {counted(self.reported, 'token')} for {counted(self.requests, 'answer')} whose text has "
            f"{self.in_text:,.0f} by the run's tokenizer, and which came in {counted(self.chunks, 'chunk')}."
        )


@dataclass(frozen=True)
class LittlesLaw(Finding):
    """Mean in flight = rate · mean latency (Little 1961); both sides are measured independently."""

    mean_in_flight: float
    rate_per_s: float
    mean_latency_s: float
    in_step: bool = False

    code = "littles_law"
    severities = (Severity.WARNING,)
    when = (
        f"mean in flight ≠ rate × mean latency over the steady window, by more than {_LITTLE_TOLERANCE:.0%} and the error "
        "from requests that straddle the window's edges (in a closed loop, of users out of step), and by more than "
        f"{_LITTLE_FLOOR_S * 1e3:g} ms and the p99 lag of the client's event loops for each request, within which the client "
        "itself ends an exchange"
    )
    advices = (
        "Requests stay open after their last token: check what delays the end.",
        "The window holds a part of a wave of requests: its requests/s are not those of the target. Read output tokens/s, or "
        "measure for longer.",
    )
    briefs = (
        "Little's law fails: check what follows the last token",
        "Little's law fails, users are in step: read output tokens/s",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        window = facts.metrics.windows.steady
        sides = None if window is None else _little_sides(facts, window)
        if window is None or sides is None:
            return None
        expected = sides.rate_per_s * sides.latency_s
        cut = _LITTLE_EDGES * sides.longest_s / window.length_s
        if facts.load.closed:  # the users' ends at either edge are independent, unless they are in step
            cut /= math.sqrt(max(1.0, sides.in_flight))
        tolerance = _LITTLE_TOLERANCE + cut
        late_s = _LITTLE_FLOOR_S + _loop_lag_s(facts)
        tolerated = max(tolerance * max(sides.in_flight, expected), late_s * sides.rate_per_s)
        if abs(sides.in_flight - expected) <= tolerated:
            return None
        in_step = facts.load.closed and waves_of(facts.requests) is not None
        return cls(sides.in_flight, sides.rate_per_s, sides.latency_s, in_step)

    @property
    def advice(self) -> str:
        return self.advices[int(self.in_step)]

    def _sentence(self) -> str:
        expected = self.rate_per_s * self.mean_latency_s
        return (
            f"Little's law fails in the steady window: {self.mean_in_flight:,.2f} requests were in flight, but "
            f"{self.rate_per_s:,.2f} requests/s with a mean latency of {self.mean_latency_s:.3f} s make {expected:,.2f}."
        )


def _loop_lag_s(facts: RunFacts) -> float:
    """By how much a late client may end an exchange after the kernel stamped its last token; 0 where it is unknown."""
    return 0.0 if facts.client is None or facts.client.lag is None else facts.client.lag.p99_ms / 1e3


class _LittleSides(NamedTuple):
    """Mean in flight by the ends of exchanges; rate, mean and 99th percentile (s) of latencies by the last tokens."""

    in_flight: float
    rate_per_s: float
    latency_s: float
    longest_s: float


def _little_sides(facts: RunFacts, window: Window) -> _LittleSides | None:
    requests = facts.requests
    edges_ns = np.array([window.start_s, window.end_s]) * 1e9
    in_flight = float(mean_in_system(requests.sent_ns, requests.done_ns, edges_ns)[0])
    ends_ns = np.where(requests.done & requests.has_tokens, requests.last_token_ns, requests.done_ns)
    latency_s = (ends_ns - requests.sent_ns) / 1e9
    within = (requests.sent_ns >= edges_ns[0]) & (requests.sent_ns <= edges_ns[1]) & ~np.isnan(latency_s)
    if not within.any():
        return None
    rate_per_s = float(within.sum()) / window.length_s
    return _LittleSides(in_flight, rate_per_s, float(latency_s[within].mean()), float(np.quantile(latency_s[within], 0.99)))

"""Findings about the answers: requests that failed, and answers that are not what was requested."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import compress
from typing import ClassVar, Self

import numpy as np

from bench_records.record import FAILURES, Outcome
from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.last_answer import CHANCE, FEWEST_FAILED, SILENCE, last_answer
from reports.metrics.requests import Requests
from reports.render.counts import counted, percent
from reports.render.tables import tenths

_FAILED_SHARE_INVALID = 0.01
_RETOKENISED_SHORT = 0.75  # of the requested tokens: text may encode to fewer tokens than it was made of
_CUT = "length"  # the finish_reason of an answer that was cut at max_tokens, or at a limit of the server


@dataclass(frozen=True)
class NothingDone(Finding):
    scheduled: int

    code = "nothing_done"
    severities = (Severity.INVALID,)
    when = "no request succeeded"
    advices = (
        "No request succeeded; see the failures.",
        "No request failed, either: all were cancelled as planned, or not sent. Cancel later, or let the run go on.",
    )
    briefs = ("No request succeeded: see the failures", "No request succeeded or failed: cancel later, or run longer")

    @classmethod
    def check(cls, facts: RunFacts) -> NothingDone | None:
        if facts.metrics.done:
            return None
        kind = NothingDone if facts.metrics.failed else NothingEnded
        return kind(facts.metrics.scheduled)

    def _sentence(self) -> str:
        return f"None of {counted(self.scheduled, 'request')} succeeded."


class NothingEnded(NothingDone):
    """For a run without a failure, too."""

    advice = NothingDone.advices[-1]


_TOO_LONG = re.compile(
    r"context[ _](length|window)"  # OpenAI, vLLM, SGLang, llama-cpp-python
    r"|max(imum)?[ _](input|prompt|sequence|seq|model)[ _]?(len|length|tokens)\b"  # TensorRT-LLM, vLLM
    r"|max_num_tokens"  # trtllm-serve
    r"|must have less than \d+ tokens"  # text-generation-inference
    r"|(prompt|input)\b.{0,60} (is|are) too long|reduce the length of the",
    re.IGNORECASE,
)
_OF_THE_LOAD = re.compile(r"\bstatus (408|429|5\d\d)\b|per minute", re.IGNORECASE)  # a refusal that a lower load prevents


@dataclass(frozen=True)
class Errors(Finding):
    """``too_long`` of the ``failed`` were too long for the server, prompt and output together, by its messages."""

    failed: int
    share: float
    by_kind: dict[str, int]
    first_error: str | None
    too_long: int = 0

    code = "errors"
    severities = (Severity.WARNING, Severity.INVALID)
    when = f"requests failed; invalid above {_FAILED_SHARE_INVALID:.0%} of those sent"
    advices = (
        "Fix what fails, or lower the load, before you compare: a run with failed requests does different work.",
        "A lower load does not help: prompts, with their outputs, are too long for the server. Leave long ones out "
        "(--max_input_len), request shorter prompts or outputs, or raise the server's limit.",
    )
    briefs = (
        "Requests failed: fix what fails, or lower the load",
        "Prompts too long for the server: leave some out by --max_input_len",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        metrics = facts.metrics
        if not metrics.failed:
            return None
        sent = metrics.scheduled - metrics.not_sent
        too_long = _too_long(facts.requests)
        return cls(metrics.failed, metrics.failed / sent, metrics.failed_by_kind, _first_error(facts), too_long)

    @property
    def severity(self) -> Severity:
        return Severity.INVALID if self.share > _FAILED_SHARE_INVALID else Severity.WARNING

    @property
    def advice(self) -> str:
        """The advice for most of the failures."""
        return self.advices[2 * self.too_long > self.failed]

    def _sentence(self) -> str:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in self.by_kind.items())
        first = "" if self.first_error is None else f" The first error: {self.first_error}"
        return f"{counted(self.failed, 'request')} failed ({percent(self.share, 1, _FAILED_SHARE_INVALID)}): {kinds}.{first}"


def _too_long(requests: Requests) -> int:
    """How many requests the server refused as too long, by its message."""
    refused = np.isin(requests.outcome, (Outcome.SERVER_ERROR.value, Outcome.REFUSED.value))
    messages = Counter(error for error in compress(requests.errors, refused.tolist()) if error is not None)
    return sum(count for message, count in messages.items() if _TOO_LONG.search(message) and not _OF_THE_LOAD.search(message))


def _first_error(facts: RunFacts) -> str | None:
    """The message of the first failure in the order of the schedule that has one."""
    outcomes = facts.requests.outcome.tolist()
    failures = (
        error
        for error, outcome in zip(facts.requests.errors, outcomes, strict=True)
        if error is not None and outcome in FAILURES
    )
    return next(failures, None)


@dataclass(frozen=True)
class StoppedAnswering(Finding):
    """``in_flight`` of the ``failed`` had been sent before, of a server that hung; 0 where those sent later show it alone."""

    after_s: float
    failed: int
    kind: str
    in_flight: int = 0

    code = "stopped_answering"
    severities = (Severity.WARNING,)
    when = (
        f"all requests that were sent after the last token or success failed, at least {FEWEST_FAILED}, and more than chance "
        f"allows ({CHANCE:.1%}) if as many fail as failed before without a token. Requests in flight that failed after it "
        "count on neither side unless they timed out. Where fewer were sent after it, those in flight count that then waited "
        f"for longer than a median success takes, and {SILENCE:g} times as long as the longest silence before. The steady "
        "window ends there at the latest"
    )
    advices = (
        "The server ended, hung or refused everything: see its log at that time. The percentiles of the whole run count the "
        "requests that failed after that; its rates end with the last success.",
    )
    briefs = ("The server stopped answering: see its log",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        last = None if facts.interrupted else last_answer(facts.requests)
        return None if last is None else cls(last.at_ns / 1e9, last.failed, last.kind, last.in_flight)

    def _sentence(self) -> str:
        failed = f"{self.failed:,} requests that were"
        which = f"{failed} in flight then or sent later" if self.in_flight else f"all {failed} sent after that"
        return f"No token of an answer came after {tenths(self.after_s)} s: {which} failed, most of them as {self.kind}."


@dataclass(frozen=True)
class WarmUpFailed(Finding):
    failed: int
    first_error: str

    code = "warm_up_failed"
    severities = (Severity.WARNING,)
    when = "warm-up requests failed"
    advices = ("Some warm-up requests failed; the server may not have been warm when the measurement started.",)
    briefs = ("Warm-up requests failed: the server may not have been warm",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        failures = facts.manifest.warm_up.failures
        return cls(len(failures), failures[0]) if failures else None

    def _sentence(self) -> str:
        return f"{counted(self.failed, 'warm-up request')} failed. The first error: {self.first_error}"


@dataclass(frozen=True)
class OutputShorterThanAsked(Finding):
    """``at_limit`` is how many of ``requests`` a limit of the server cut, by its finish_reason and its count of tokens."""

    requests: int
    share: float
    asked_tokens: float
    got_tokens: float
    at_limit: int

    code = "output_shorter_than_asked"
    severities = (Severity.NOTE, Severity.WARNING)
    when = (
        "answers have fewer tokens than requested, or where tokens are counted from text, fewer than "
        f"{_RETOKENISED_SHORT:.0%} of them and another finish_reason than `length`; a warning where a request set --ignore_eos"
    )
    advices = (
        "Answers ended by themselves; for equal work in every run use --ignore_eos.",
        "The server ended answers early in spite of --ignore_eos; compare tokens/s, not requests/s.",
        "A limit of the server ended them, for example on prompt and answer together: request fewer tokens or shorter "
        "prompts, or raise the limit.",
    )
    briefs = (
        "Answers ended early: use --ignore_eos for equal work",
        "Answers ended early in spite of --ignore_eos: compare tokens/s",
        "Server length limit reached: request fewer tokens, or raise the limit",
    )
    ended_early: ClassVar[str] = advices[0]

    @classmethod
    def check(cls, facts: RunFacts) -> OutputShorterThanAsked | None:
        requests = facts.requests
        known = requests.done & ~np.isnan(requests.output_tokens)
        least = requests.requested_output_tokens * np.where(requests.counted_from_text, _RETOKENISED_SHORT, 1.0)
        has_all = requests.counted_from_text & (requests.finish_reason == _CUT)  # by the server
        short = known & (requests.output_tokens < least) & ~has_all
        if not short.any():
            return None
        kind = OutputShorterDespiteIgnoreEos if (short & requests.ignore_eos).any() else OutputShorterThanAsked
        return kind(
            requests=int(short.sum()),
            share=float(short.sum() / known.sum()),
            asked_tokens=float(requests.requested_output_tokens[known].sum()),
            got_tokens=float(requests.output_tokens[known].sum()),
            at_limit=int((short & (requests.finish_reason == _CUT)).sum()),
        )

    @property
    def advice(self) -> str:
        """The advice for what ended most of the short answers."""
        return self.advices[2] if 2 * self.at_limit >= self.requests else self.ended_early

    def _sentence(self) -> str:
        share = percent(self.share)
        answers = counted(self.requests, f"answer ({share}) was", f"answers ({share}) were")
        at_limit = f" The server says that a limit of length ended {self.at_limit:,} of them." if self.at_limit else ""
        return f"{answers} shorter than requested: {self.got_tokens:,.0f} of {self.asked_tokens:,.0f} tokens in all.{at_limit}"


class OutputShorterDespiteIgnoreEos(OutputShorterThanAsked):
    """At least one of the short answers was requested with `--ignore_eos`."""

    severity = Severity.WARNING
    ended_early = OutputShorterThanAsked.advices[1]


@dataclass(frozen=True)
class PromptEchoed(Finding):
    requests: int

    code = "prompt_echoed"
    severities = (Severity.NOTE,)
    when = "answers begin with the prompt"
    advices = ("The server repeats the prompt in its answer; those tokens are not counted as output.",)
    briefs = ("The prompt is echoed: it does not count as output",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        echoed = int(facts.requests.prompt_echoed.sum())
        return cls(echoed) if echoed else None

    def _sentence(self) -> str:
        return f"{counted(self.requests, 'answer begins', 'answers begin')} with the prompt."


@dataclass(frozen=True)
class ReasoningAlone(Finding):
    requests: int
    share: float

    code = "reasoning_alone"
    severities = (Severity.WARNING,)
    when = "streamed answers have reasoning and no other text"
    advices = ("TTFO leaves these answers out, so it is too low. Request longer outputs, or less reasoning.",)
    briefs = ("Answers have reasoning only: request longer outputs",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        if not facts.metrics.streamed:
            return None
        requests = facts.requests
        alone = int((requests.done & requests.has_reasoning & np.isnan(requests.first_output_ns)).sum())
        return cls(alone, alone / facts.metrics.done) if alone else None

    def _sentence(self) -> str:
        share = percent(self.share, 1)
        return f"{counted(self.requests, f'answer ({share}) has', f'answers ({share}) have')} reasoning and no other text."


@dataclass(frozen=True)
class FinishReasonMissing(Finding):
    requests: int

    code = "finish_reason_missing"
    severities = (Severity.NOTE,)
    when = "no answer of OpenAI's protocol has a `finish_reason`"
    advices = (
        "Answers that the server cut look like complete ones here. Compare their lengths with the requested ones, and see the "
        "server's log.",
    )
    briefs = ("No finish_reason: cut answers would not be seen",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        if facts.target.sends_finish_reason is None or (facts.requests.finish_reason != "").any():
            return None
        return cls(facts.metrics.done) if facts.metrics.done else None

    def _sentence(self) -> str:
        answers = counted(self.requests, "answer")
        return f"The server sent no finish_reason with any of {answers}, so whether it cut some is unknown."


@dataclass(frozen=True)
class EndMarkerMissing(Finding):
    requests: int
    share: float

    code = "end_marker_missing"
    severities = (Severity.NOTE,)
    when = "streams ended in order and with a `finish_reason`, but without the `[DONE]` of OpenAI's protocol"
    advices = ("Their finish_reason and the end of the HTTP message show that these answers are complete.",)
    briefs = ("Streams without [DONE]: their finish_reason says they are complete",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        without = int((facts.requests.done & facts.requests.end_marker_missing).sum())
        return cls(without, without / facts.metrics.done) if without else None

    def _sentence(self) -> str:
        return f"{counted(self.requests, 'answer')} ({percent(self.share, 1)}) ended without [DONE]."

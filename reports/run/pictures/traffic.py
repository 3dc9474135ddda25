"""Pictures of traffic: requests offered, sent and answered over the run, and tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reports.metrics.configuration import configured_load
from reports.metrics.in_flight import mean_in_system
from reports.metrics.latency import client_slip_by_request_ms
from reports.metrics.output_events import output_tokens
from reports.metrics.requests import Requests
from reports.render.counts import counted
from reports.render.picture import Axis, Colour, Dots, Line, Mark, Picture, Stroke
from reports.run.pictures.over_time import TIME, edges_of, end_ns, held, part_text, per_second, percentile_per_part, seconds
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray

_OPEN_RATES = (
    "scheduled, sent, and ended with success. Where sent departs from offered, the client was late; where answered stays "
    "below, the target did not keep up."
)
_CLOSED_RATES = "sent, and ended with success. Where requests wait for answers no rate is offered."
_FINE_PARTS = 600
_MOST_PAIRS = 2_000
_LENGTH_CELLS = 60


def arrival_pictures(report: RunReport) -> list[Picture]:
    """Rates, slip and requests in flight over time; none where the whole run took no time."""
    if end_ns(report.requests) <= 0:
        return []
    waits = configured_load(report.manifest).waits_for_answers
    return [_rates(report.requests, waits), *_slip(report.requests), *_in_flight(report.requests)]


def token_pictures(report: RunReport) -> list[Picture]:
    """Tokens as they arrived, requested against received, and lengths."""
    return [*_token_rate(report.requests), *_requested_and_received(report.requests), *_lengths(report.requests)]


def _rates(requests: Requests, waits_for_answers: bool) -> Picture:
    edges_ns = edges_of(requests)
    at_s = seconds(edges_ns)
    due_ns = requests.scheduled_ns[requests.offered]
    offered = Line("offered", at_s, per_second(due_ns, edges_ns), Colour.GREY, steps=True)
    sent = per_second(requests.sent_ns, edges_ns)
    ended = per_second(requests.done_ns[requests.done], edges_ns)
    return Picture(
        "rates",
        "Sent and answered" if waits_for_answers else "Offered, achieved and answered",
        f"Requests a second in each {part_text(edges_ns)}: " + (_CLOSED_RATES if waits_for_answers else _OPEN_RATES),
        TIME,
        Axis("requests", "1/s", from_zero=True),
        (
            *(() if waits_for_answers else (offered,)),
            Line("sent", at_s, sent, Colour.BLUE, Stroke.DASHED, steps=True),
            Line("answered", at_s, ended, Colour.GREEN, steps=True),
        ),
    )


def _slip(requests: Requests) -> Iterator[Picture]:
    sent = ~np.isnan(requests.sent_ns)
    if not sent.any():
        return
    edges_ns = edges_of(requests)
    at_s = seconds((edges_ns[:-1] + edges_ns[1:]) / 2)
    arrivals_ns = requests.scheduled_ns[sent]
    slip_ms = client_slip_by_request_ms(requests)[sent]
    yield Picture(
        "slip",
        "Schedule slip over time",
        "Delay of the sends against the schedule: the median and the largest slip of each "
        f"{part_text(edges_ns)}. The wait at a ceiling on requests in flight is not counted.",
        TIME,
        Axis("schedule slip", "ms", from_zero=True),
        (
            Line("largest", at_s, percentile_per_part(arrivals_ns, slip_ms, edges_ns, 1.0), Colour.RED),
            Line("median", at_s, percentile_per_part(arrivals_ns, slip_ms, edges_ns, 0.5), Colour.BLUE),
        ),
    )


def _in_flight(requests: Requests) -> Iterator[Picture]:
    sent = ~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns)
    if not sent.any():
        return
    edges_ns: FloatArray = np.linspace(0.0, end_ns(requests), _FINE_PARTS + 1)
    at_s = seconds(edges_ns)
    done_ns = requests.done_ns[sent]
    in_system = mean_in_system(requests.scheduled_ns[sent], done_ns, edges_ns)
    in_flight = mean_in_system(requests.sent_ns[sent], done_ns, edges_ns)
    yield Picture(
        "in-flight",
        "Requests in flight",
        f"Requests sent and not yet ended, the mean of each {part_text(edges_ns)}; dashed, with those due and not yet sent.",
        TIME,
        Axis("requests", from_zero=True),
        (
            Line("due and not ended", at_s, held(in_system), Colour.GREY, Stroke.DASHED, steps=True),
            Line("in flight", at_s, held(in_flight), Colour.BLUE, steps=True),
        ),
    )


def _token_rate(requests: Requests) -> Iterator[Picture]:
    tokens = output_tokens(requests)
    if tokens is None or not tokens.times_ns.size or end_ns(requests) <= 0:
        return
    edges_ns = edges_of(requests, a_part=5)
    at_s = seconds(edges_ns)
    yield Picture(
        "output-tokens",
        "Output tokens over time",
        "Output tokens a second of successful requests and of those cancelled as planned, as they arrived at the client, in "
        f"each {part_text(edges_ns)}.",
        TIME,
        Axis("output tokens", "1/s", from_zero=True),
        (Line("output tokens", at_s, per_second(tokens.times_ns, edges_ns, tokens.amounts), Colour.GREEN, steps=True),),
    )


def _requested_and_received(requests: Requests) -> Iterator[Picture]:
    known = requests.done & ~np.isnan(requests.output_tokens) & ~np.isnan(requests.requested_output_tokens)
    if not known.any():
        return
    pairs, counts = np.unique(
        np.column_stack([requests.requested_output_tokens[known], requests.output_tokens[known]]), axis=0, return_counts=True
    )
    caption = (
        "Each dot is the successful requests with one pair of requested and received output tokens; on the line are those that "
    )
    caption += "received what they requested."
    if len(pairs) > _MOST_PAIRS:
        off = np.abs(pairs[:, 0] - pairs[:, 1])
        chosen = np.sort(np.argsort(off, kind="stable")[np.round(np.linspace(0, len(pairs) - 1, _MOST_PAIRS)).astype(np.int64)])
        caption += f" {_MOST_PAIRS:,} of {len(pairs):,} different pairs are shown."
        pairs, counts = pairs[chosen], counts[chosen]
    most = float(pairs.max())
    marks: tuple[Mark, ...] = (
        Line("received as requested", np.array([0.0, most]), np.array([0.0, most]), Colour.GREY, Stroke.DASHED),
        Dots("requests", pairs[:, 0], pairs[:, 1], Colour.BLUE, notes=tuple(counted(n, "request") for n in counts.tolist())),
    )
    yield Picture(
        "asked-and-got",
        "Output tokens requested and received",
        caption,
        Axis("requested", "tokens", from_zero=True),
        Axis("received", "tokens", from_zero=True),
        marks,
    )


def _lengths(requests: Requests) -> Iterator[Picture]:
    columns = [
        ("input", requests.input_tokens[requests.done], Colour.ORANGE, Stroke.SOLID),
        ("output requested", requests.requested_output_tokens[requests.done], Colour.GREY, Stroke.DASHED),
        ("output received", requests.output_tokens[requests.done], Colour.BLUE, Stroke.SOLID),
    ]
    known = [(name, values[~np.isnan(values)], colour, stroke) for name, values, colour, stroke in columns]
    known = [column for column in known if column[1].size]
    if not known:
        return
    most = max(float(values.max()) for _, values, _, _ in known)
    width = max(1, -(-int(most + 1) // _LENGTH_CELLS))
    edges = np.arange(0, most + 1 + width, width) - 0.5
    marks = tuple(
        Line(name, edges, held(np.histogram(values, edges)[0].astype(np.float64)), colour, stroke, steps=True)
        for name, values, colour, stroke in known
    )
    cells = "of each length" if width == 1 else f"in cells of {width} tokens"
    yield Picture(
        "lengths",
        "Lengths in tokens",
        f"The number of successful requests with a prompt and an answer {cells}.",
        Axis("length", "tokens"),
        Axis("requests", from_zero=True),
        marks,
    )

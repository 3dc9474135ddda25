"""The pictures of a workload: lengths, arrivals over time, gaps, prefix sharing and conversations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from reports.render.picture import Axis, Colour, Line, Picture, Stroke
from reports.statistics.arrays import FloatArray
from workloads.table.statistics import Integers, PrefixSharing, turns_of_sessions, values_of, words_of
from workloads.table.workload import Workload

_BINS = 60
_PARTS = 120  # of the time
_MOST_TURNS = 100


def length_pictures(workload: Workload) -> tuple[Picture, ...]:
    """Histograms of lengths: in tokens, and in words of texts."""
    tokens = [("input", values_of(workload, "input_tokens")), ("output", values_of(workload, "output_tokens"))]
    words = [("prompt", words_of(workload, "prompt")), ("answer", words_of(workload, "answer"))]
    return tuple(
        _length_picture(unit, [(name, values) for name, values in series if values.size])
        for unit, series in (("tokens", tokens), ("words", words))
        if any(values.size for _, values in series)
    )


def _length_picture(unit: str, series: Sequence[tuple[str, Integers]]) -> Picture:
    longest = float(max(values.max() for _, values in series))
    edges = np.unique(np.rint(_log_edges(1.0, longest + 1.0))) - 0.5  # between whole numbers
    colours = (Colour.BLUE, Colour.ORANGE)
    return Picture(
        f"lengths-{unit}",
        f"Lengths in {unit}",
        "The share of rows in each part of a logarithmic scale; a length of 0 counts in the first part.",
        Axis("length", unit, log=True),
        Axis("rows", "%", from_zero=True),
        tuple(
            Line(name, edges, _shares(np.maximum(values, 1), edges), colour, steps=True)
            for (name, values), colour in zip(series, colours, strict=False)
        ),
    )


def arrival_pictures(workload: Workload) -> Iterator[Picture]:
    """Requests and tokens a second over time, and the gaps between arrivals; none without arrivals of all requests."""
    arrival_ns = values_of(workload, "arrival_ns")
    if workload.facts.untimed_rows or arrival_ns.size < 2 or arrival_ns[-1] == arrival_ns[0]:
        return
    at_s = arrival_ns / 1e9
    edges = np.linspace(at_s[0], at_s[-1], _PARTS + 1)
    part_s = float(edges[1] - edges[0])
    mean = np.full(edges.size, at_s.size / float(at_s[-1] - at_s[0]))
    yield Picture(
        "arrivals",
        "Arrivals over time",
        f"Requests a second in parts of {part_s:.3g} s; dashed is the mean.",
        Axis("time", "s", group="time"),
        Axis("arrivals", "requests/s", from_zero=True),
        (
            Line("arrivals", edges, _per_second(at_s, edges), Colour.BLUE, steps=True),
            Line("mean", edges, mean, Colour.GREY, Stroke.DASHED),
        ),
    )
    yield from _tokens_over_time(workload, at_s, edges)
    yield _gap_picture(np.diff(arrival_ns) / 1e6)


def _tokens_over_time(workload: Workload, at_s: FloatArray, edges: FloatArray) -> Iterator[Picture]:
    columns = (("input", "input_tokens", Colour.BLUE), ("output", "output_tokens", Colour.ORANGE))
    known = [column for column in columns if workload.table[column[1]].null_count == 0]
    if known:
        yield Picture(
            "tokens",
            "Tokens over time",
            "Tokens a second of the requests that arrive, as if they were answered at once.",
            Axis("time", "s", group="time"),
            Axis("tokens", "tokens/s", from_zero=True),
            tuple(
                Line(name, edges, _per_second(at_s, edges, values_of(workload, column)), colour, steps=True)
                for name, column, colour in known
            ),
        )


def _gap_picture(gaps_ms: FloatArray) -> Picture:
    shown = gaps_ms[gaps_ms > 0]
    edges = _log_edges(float(shown.min()) * 0.999, float(shown.max()) * 1.001)
    counts = np.histogram(shown, edges)[0]
    poisson = np.diff(-np.exp(-edges / float(gaps_ms.mean())))
    return Picture(
        "gaps",
        "Gaps between arrivals",
        "The share of gaps in each part of a logarithmic scale; dashed is a Poisson process of the same rate. "
        f"{100 * (1 - shown.size / gaps_ms.size):.1f} % of the gaps are 0 and not drawn.",
        Axis("gap", "ms", log=True),
        Axis("gaps", "%", from_zero=True),
        (
            Line("gaps", edges, _held(100.0 * counts / gaps_ms.size), Colour.BLUE, steps=True),
            Line("Poisson process", edges, _held(100.0 * poisson), Colour.GREY, Stroke.DASHED, steps=True),
        ),
    )


def prefix_pictures(prefixes: PrefixSharing | None) -> Iterator[Picture]:
    """How much of each prompt occurs in an earlier one; none without hashes of blocks."""
    if prefixes is None or not prefixes.by_row.size:
        return
    edges = np.linspace(0.0, 100.0, 51)
    yield Picture(
        "prefixes",
        "Prefix sharing",
        f"The share of rows by how much of their prompt an infinite prefix cache has; {100 * prefixes.share:.1f} % of all "
        "prompt tokens.",
        Axis("prompt in the cache", "%"),
        Axis("rows", "%", from_zero=True),
        (Line("rows", edges, _shares(100.0 * prefixes.by_row, edges), Colour.GREEN, steps=True),),
    )


def session_pictures(workload: Workload) -> Iterator[Picture]:
    """Turns of conversations; none without conversations."""
    turns = turns_of_sessions(workload)
    if turns.size:
        most = min(int(turns.max()), _MOST_TURNS)
        edges = np.arange(-0.5, most + 2.5)
        step = -(-most // 10)
        yield Picture(
            "turns",
            "Turns of conversations",
            f"The share of conversations by their number of turns; {_MOST_TURNS} and more are one part.",
            Axis("turns", ticks=tuple((float(turn), str(turn)) for turn in range(step, most + 1, step))),
            Axis("conversations", "%", from_zero=True),
            (Line("conversations", edges, _shares(np.minimum(turns, _MOST_TURNS), edges), Colour.PURPLE, steps=True),),
        )


def _log_edges(low: float, high: float) -> FloatArray:
    return np.geomspace(low, high, _BINS + 1)


def _shares(values: FloatArray | Integers, edges: FloatArray) -> FloatArray:
    """The per cent of ``values`` in each part, as y of steps."""
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], 0.0))
    return _held(100.0 * np.histogram(inside, edges)[0] / values.size)


def _per_second(at_s: FloatArray, edges: FloatArray, amounts: Integers | None = None) -> FloatArray:
    counts = np.histogram(at_s, edges, weights=None if amounts is None else amounts.astype(np.float64))[0]
    return _held(counts / np.diff(edges))


def _held(values: FloatArray) -> FloatArray:
    """The value of each part, and the last again at the end."""
    return np.append(values, values[-1]).astype(np.float64)

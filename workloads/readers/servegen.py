"""Reader of ServeGen's client profiles: ``chunk-<i>-trace.csv`` with ``chunk-<i>-dataset.json`` beside it, or a folder of such.

The CSV has no header: start of a window in s, requests a second, CV, family of gaps (``Gamma``, ``Weibull``, or empty where
there is no traffic), shape, scale. The JSON has, for each window of lengths, distributions as texts of Python dicts of length
and probability, which are parsed as literals. Source: alibaba/ServeGen.
"""

from __future__ import annotations

import ast
import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from workloads.arrivals.client_profiles import ClientProfile, GapFamily, LengthDistribution, LengthWindow, RateWindow
from workloads.elements.errors import DatasetError
from workloads.readers.fields import Row, checked_tokens, object_of, shown, text_of, whole_number
from workloads.readers.json_rows import json_document
from workloads.readers.rejects import RowError
from workloads.readers.source import open_source

_TRACE = re.compile(r"(?P<name>chunk-(?P<number>[0-9]{1,9}))-trace\.csv")
_COLUMNS = 6
_DEFAULT_WINDOW_S = 600.0
_LATEST_S = 1e9
_MOST_RATE_PER_S = 1e6
# A CV of 32 and of 429: a smaller shape is one burst. The least of ServeGen's own data are 0.0067 and 0.152.
_LEAST_SHAPES = MappingProxyType({GapFamily.GAMMA: 1e-3, GapFamily.WEIBULL: 0.1})
_MOST_SHAPE = 1e6
_MOST_LITERAL = 4 << 20


def is_client_profile(path: Path) -> bool:
    """Whether ``path`` is a trace of ServeGen, or a folder that has one."""
    return _TRACE.fullmatch(path.name) is not None or (path.is_dir() and bool(_traces(path)))


def read_client_profiles(path: Path) -> tuple[ClientProfile, ...]:
    """The clients, by their number. Raises DatasetError."""
    traces = _traces(path) if path.is_dir() else [path]
    if not traces or not all(_TRACE.fullmatch(trace.name) for trace in traces):
        raise DatasetError(path, "has no client of ServeGen: files chunk-<i>-trace.csv with chunk-<i>-dataset.json")
    return tuple(_client(trace) for trace in traces)


def _traces(folder: Path) -> list[Path]:
    found = [(int(match["number"]), path) for path in folder.iterdir() if (match := _TRACE.fullmatch(path.name)) is not None]
    return [path for _, path in sorted(found)]


def _client(trace: Path) -> ClientProfile:
    name = trace.name.removesuffix("-trace.csv")
    return ClientProfile(name, _rates(trace), _lengths(trace.with_name(f"{name}-dataset.json")))


def _rates(path: Path) -> tuple[RateWindow, ...]:
    with open_source(path) as source:
        try:
            text = source.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise DatasetError(path, f"is not UTF-8: {error.reason}", f"byte {error.start}") from error
    starts: list[float] = []
    rows: list[tuple[float, GapFamily, float]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            start_s, row = _window(next(csv.reader([line])))
            if starts and start_s <= starts[-1]:
                raise RowError(f"the window {start_s:g} does not begin after the one before it")
        except (RowError, csv.Error) as error:
            raise DatasetError(path, str(error), f"line {number}") from error
        starts.append(start_s)
        rows.append(row)
    if not rows:
        raise DatasetError(path, "holds no windows")
    last = starts[-1] - starts[-2] if len(starts) > 1 else _DEFAULT_WINDOW_S
    ends = [*starts[1:], starts[-1] + last]
    return tuple(RateWindow(start, end, *row) for start, end, row in zip(starts, ends, rows, strict=True))


def _window(cells: list[str]) -> tuple[float, tuple[float, GapFamily, float]]:
    if len(cells) != _COLUMNS:
        raise RowError(f"has {len(cells)} columns, not {_COLUMNS}: start, rate, CV, family, shape, scale")
    start_s = _number(cells[0], "start", 0.0, _LATEST_S)
    family = cells[3].strip()
    if not family:
        return start_s, (0.0, GapFamily.GAMMA, 1.0)
    if family not in set(GapFamily):
        raise RowError(f"the family {shown(family)} is none of {', '.join(GapFamily)}")
    rate = _number(cells[1], "rate", 0.0, _MOST_RATE_PER_S)
    shape = _number(cells[4], "shape", _LEAST_SHAPES[GapFamily(family)], _MOST_SHAPE)
    return start_s, (rate, GapFamily(family), shape)


def _number(text: str, name: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise RowError(f"the {name} must be a number from {least:g} to {most:g}, found {shown(text)}")
    return value


def _lengths(path: Path) -> tuple[LengthWindow, ...]:
    """Those windows that have lengths: in a window without, the client's lengths are those of the one before it."""
    with open_source(path) as source:
        document = json_document(source)
    try:
        windows = [_length_window(start, window) for start, window in object_of(document).items()]
    except RowError as error:
        raise DatasetError(path, str(error)) from error
    known = [window for window in windows if window is not None]
    if not known:
        raise DatasetError(path, "holds no windows with lengths" if windows else "holds no windows")
    return tuple(sorted(known, key=lambda window: window.start_s))


def _length_window(start: str, window: object) -> LengthWindow | None:
    """None of a window in which the client had no requests, whose distributions are empty."""
    try:
        row = object_of(window)
        start_s = _number(start, "start", 0.0, _LATEST_S)
        weights = {field: _literal(row, field) for field in ("input_tokens", "output_tokens")}
        if not any(weights.values()):
            return None
        return LengthWindow(start_s, *(_distribution(found, field) for field, found in weights.items()))
    except RowError as error:
        raise RowError(f"window {shown(start)}: {error}") from error


def _distribution(found: Mapping[object, object], field: str) -> LengthDistribution:
    """A distribution without lengths of 0, which are no requests; probabilities are scaled to a sum of 1."""
    weights = {checked_tokens(whole_number(length), field): _weight(value, field) for length, value in found.items()}
    tokens = np.array([length for length in weights if length], np.int64)
    kept = np.array([weight for length, weight in weights.items() if length], np.float64)
    if not kept.sum() > 0:
        raise RowError(f'"{field}" has no length with a probability above 0')
    return LengthDistribution(tokens, kept / kept.sum())


def _literal(row: Row, field: str) -> Mapping[object, object]:
    text = text_of(row, field)
    try:
        value = ast.literal_eval(text) if len(text) <= _MOST_LITERAL else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RowError(f'"{field}" must be the text of a dict of lengths and probabilities, found {shown(text)}')
    return value


def _weight(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        raise RowError(f'"{field}" has the probability {shown(value)}')
    return float(value)

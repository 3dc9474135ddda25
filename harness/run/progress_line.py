"""The progress line on stderr: rewritten in place on a terminal, one every few seconds elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.run.live_statistics import Snapshot

_TERMINAL_PERIOD_S = 0.25
_LOG_PERIOD_S = 10.0


class ProgressLine:
    """Shows snapshots on ``output``; the last one stays."""

    def __init__(self, output: TextIO | None = None) -> None:
        self._output = output = output or sys.stderr
        self._live: Live | None = None
        if output.isatty():
            self._live = Live(console=Console(file=output), auto_refresh=False)
        self._shown_s = float("-inf")
        self._unshown: Snapshot | None = None

    def __enter__(self) -> ProgressLine:
        if self._live is not None:
            self._live.start()
        return self

    def __call__(self, snapshot: Snapshot) -> None:
        self._unshown = snapshot
        if snapshot.elapsed_s - self._shown_s >= (_LOG_PERIOD_S if self._live is None else _TERMINAL_PERIOD_S):
            self._show(snapshot)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._unshown is not None:
            self._show(self._unshown)
        if self._live is not None:
            self._live.stop()

    def _show(self, snapshot: Snapshot) -> None:
        self._shown_s = snapshot.elapsed_s
        self._unshown = None
        line = format_snapshot(snapshot)
        if self._live is None:
            print(line, file=self._output, flush=True)
        else:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)


def format_snapshot(snapshot: Snapshot) -> str:
    """The line for one snapshot: what decides first, since a narrow terminal cuts the end off."""
    latency = "–" if snapshot.latency_p99_ms is None else f"{snapshot.latency_p99_ms:.1f} ms"
    sent = f"{snapshot.sent}" if snapshot.scheduled is None else f"{snapshot.sent}/{snapshot.scheduled}"
    return (
        f"{_clock(snapshot.elapsed_s)}{_progress(snapshot)}  {snapshot.latency} p99 {latency}  failed {snapshot.failed}"
        + ("  stopping: waiting for requests in flight; Ctrl-C again cancels them" if snapshot.stopping else "")
        + f"  sent {sent}  in flight {snapshot.in_flight}  {snapshot.requests_per_s:.1f} req/s"
        f"  {snapshot.tokens_per_s:.0f} tok/s"
    )


def _progress(snapshot: Snapshot) -> str:
    """The share of the requests that ended, and the time left at the speed so far; nothing where their number is unknown."""
    ended = snapshot.done + snapshot.failed
    if not snapshot.scheduled:
        return ""
    share = f"  {ended / snapshot.scheduled:.0%}"
    if not ended or ended >= snapshot.scheduled or snapshot.stopping:
        return share
    return f"{share}  {_clock(snapshot.elapsed_s * (snapshot.scheduled - ended) / ended)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"

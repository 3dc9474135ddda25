"""Tokens per streamed response, adapted to the load of the sending thread. Independent of Triton, to be tested without it."""

from __future__ import annotations

_WINDOW_S = 0.1
_TOO_BUSY = 0.4  # of the window
_IDLE_ENOUGH = 0.2


class StreamPace:
    """Controller of the stream interval, driven by the utilization of the sending thread.

    A response costs sender, Triton and client about 200 µs in total, whatever its size, and on a CPU the network pays for it.
    When sending takes much of the time, a stream's tokens are joined: two per response, then three, up to
    ``largest_interval``; and fewer again when the load falls. First and last tokens never wait. TensorRT-LLM's LLM API has the
    same as a fixed ``stream_interval``. With ``largest_interval`` 1 no tokens are joined, not even those that wait.
    """

    def __init__(self, largest_interval: int) -> None:
        self.interval_tokens = 1
        self.most_joined = 1 if largest_interval == 1 else None
        self._largest = largest_interval
        self._window_start_s: float | None = None
        self._busy_s = 0.0

    def sent(self, started_s: float, ended_s: float) -> None:
        """Record the sending of one response; times of a monotonic clock, in order."""
        if self._window_start_s is None:
            self._window_start_s = started_s
        self._busy_s += ended_s - started_s
        window_s = ended_s - self._window_start_s
        if window_s < _WINDOW_S:
            return
        if self._busy_s > _TOO_BUSY * window_s:
            self.interval_tokens = min(self._largest, self.interval_tokens + 1)
        elif self._busy_s < _IDLE_ENOUGH * window_s:
            self.interval_tokens = max(1, self.interval_tokens - 1)
        self._window_start_s, self._busy_s = ended_s, 0.0

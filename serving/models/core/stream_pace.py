"""How many tokens a streamed response carries: one, until sending responses takes up too much of the time."""

from __future__ import annotations

_WINDOW_S = 0.1
_TOO_BUSY = 0.4  # of the window
_IDLE_ENOUGH = 0.2


class StreamPace:
    """Watches the one thread that sends responses.

    A response costs its sender, Triton and the client some 200 µs between them, whatever it carries, and on a CPU the
    network pays for it. So where much of the time goes into sending, a stream's tokens are gathered: two a
    response, then three, up to ``largest_interval``; and fewer again when the load falls. A first and a last token never
    wait. The LLM API of TensorRT-LLM has the same as a fixed ``stream_interval``. ``largest_interval`` 1 turns it off.
    """

    def __init__(self, largest_interval: int) -> None:
        self.interval_tokens = 1
        self._largest = largest_interval
        self._window_start_s: float | None = None
        self._busy_s = 0.0

    def sent(self, started_s: float, ended_s: float) -> None:
        """Take note of one response's sending; times of a monotonic clock, in order."""
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

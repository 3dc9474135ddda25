"""Stream interval by utilization of the sender, with simulated times."""

from serving.models.core.stream_pace import StreamPace


def _send(pace: StreamPace, start_s: float, responses: int, busy_s: float, gap_s: float) -> float:
    for _ in range(responses):
        pace.sent(start_s, start_s + busy_s)
        start_s += busy_s + gap_s
    return start_s


def test_idle_sender_sends_token_by_token() -> None:
    pace = StreamPace(largest_interval=4)
    _send(pace, 0.0, 10_000, busy_s=0.0001, gap_s=0.0003)
    assert pace.interval_tokens == 1


def test_busy_sender_joins_up_to_the_largest_interval() -> None:
    pace = StreamPace(largest_interval=3)
    _send(pace, 0.0, 10_000, busy_s=0.0002, gap_s=0.0001)
    assert pace.interval_tokens == 3


def test_interval_returns_to_one_when_the_load_falls() -> None:
    pace = StreamPace(largest_interval=4)
    at_s = _send(pace, 0.0, 10_000, busy_s=0.0002, gap_s=0.0)
    assert pace.interval_tokens == 4
    _send(pace, at_s, 1_000, busy_s=0.0001, gap_s=0.002)
    assert pace.interval_tokens == 1


def test_largest_interval_of_one_never_joins() -> None:
    pace = StreamPace(largest_interval=1)
    _send(pace, 0.0, 10_000, busy_s=0.001, gap_s=0.0)
    assert pace.interval_tokens == 1

"""The line of a benchmark's own times."""

from __future__ import annotations

from bench_cli.measurement.times import times_text
from bench_records.manifest import Times


def test_the_times_of_a_line_add_up_also_where_a_server_was_stopped() -> None:
    times = Times(set_up_s=6.6, run_s=11.3, close_target_s=3.0, report_s=1.0, total_s=21.9, cpu_s=2.8)
    assert times_text(times) == (
        "Set-up 6.6 s, run 11.3 s, end of the target 3.0 s, report 1.0 s; in all 21.9 s, and 2.8 s of CPU."
    )


def test_a_connection_that_was_closed_at_once_is_not_named() -> None:
    times = Times(set_up_s=2.6, run_s=3.3, close_target_s=0.00003, report_s=0.5, total_s=6.4, cpu_s=2.7)
    assert times_text(times) == "Set-up 2.6 s, run 3.3 s, report 0.5 s; in all 6.4 s, and 2.7 s of CPU."

"""What making a report may import: every measurement ends with one, and each second counts there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from bench_records.client_sample import ClientSample
from bench_records.record import Outcome, Record
from bench_records.server_table import MetricSample
from reports.run_report import RunReport
from tests.reports.manifests import asked_load

_HEAVY = ("scipy.stats", "pandas", "pyarrow.dataset", "matplotlib", "bokeh")


def test_making_a_report_imports_nothing_that_it_can_do_without(
    make_report: Callable[..., RunReport], queued_run: Callable[..., list[Record]]
) -> None:
    report = _with_everything(make_report, queued_run(20.0, 1))
    assert report.metrics.goodput is not None
    assert report.client is not None
    assert report.telemetry is not None
    code = (
        "import sys\nfrom bench_cli import run\n"
        f"for form in ('console', 'markdown', 'html'):\n    run(['report', {str(report.folder.path)!r}, '--format', form])\n"
        f"print('\\n', [name for name in ('scipy.special', *{_HEAVY}) if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("</html>") == 1
    assert done.stdout.splitlines()[-1].strip() == "['scipy.special']"


def _with_everything(make_report: Callable[..., RunReport], records: list[Record]) -> RunReport:
    """Intervals, a test of arrivals, goodput, a failure, client health and server load."""
    lost = Record(index=700, outcome=Outcome.LOST, scheduled_ns=1, requested_output_tokens=3, error="no answer")
    client = [ClientSample(time_ns=k * 10**9, worker=k % 2 or None, lag_ns=1_000, cpu_ns=1_000) for k in range(30)]
    server = [MetricSample(k * 10**9, 1_000, "nv_inference_count", '{"model":"m"}', float(k)) for k in range(30)]
    criteria = {"slo": ["ttft_ms<=200"]}
    return make_report([*records, lost], client=client, server=server, criteria=criteria, load=asked_load(20.0))

"""One run, opened: its DataFrames, numbers and findings, each computed when it is first used."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from bench_records.run_folder import RunFolder
from reports.errors import MissingLibraryError
from reports.findings.finding import Finding
from reports.metrics.request_phases import client_clock
from reports.metrics.run_metrics import Metrics
from reports.render.plain_text import printable
from reports.render.tables import cell_text, html_table
from reports.run.headline import describe_run, verdict
from reports.run.tables import latency_table
from reports.run_data.columns import RECORDED
from reports.run_report import RunReport, read_run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A finished run. Nothing but the manifest is read before it is used, and nothing is computed twice.

    ``manifest`` is ``run.json``. The columns of the DataFrames are in docs/reference/columns.md; a DataFrame is kept, so copy
    it before changing it. Their first use raises MissingLibraryError without pandas; the first use of anything but
    ``manifest`` raises RunFolderError where a file is damaged.
    """

    folder: RunFolder
    manifest: Mapping[str, Any]

    @cached_property
    def report(self) -> RunReport:
        """Everything that the reports compute; ``bench report`` renders this object."""
        return read_run(self.folder)

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.folder.path.resolve().name

    @property
    def summary(self) -> Metrics:
        """The metrics of ``summary.json``, for example ``run.summary.e2e_ms.scheduled.p99``."""
        return self.report.metrics

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The statements about whether the run can be believed, the most severe first."""
        return self.report.findings

    @property
    def valid(self) -> bool:
        """Whether no finding makes the run invalid."""
        return self.report.valid

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row for each request."""
        recorded = self.folder.read_requests([column.name for column in RECORDED])
        frame: pd.DataFrame = _frames().requests_frame(recorded, self.report.all_requests, self.report.metrics.streamed)
        return frame

    @cached_property
    def chunks(self) -> pd.DataFrame:
        """One row for each response with generated tokens; ``index`` is the request's."""
        frame: pd.DataFrame = _frames().chunks_frame(self.report.all_requests)
        return frame

    @cached_property
    def phases(self) -> pd.DataFrame:
        """One row for each request of the load and latency, by the phases of ``bench why``, which add up to it."""
        report = self.report
        clock = client_clock(report.manifest)
        frame: pd.DataFrame = _frames().phases_frame(report.requests, report.metrics.streamed, clock)
        return frame

    @cached_property
    def client_series(self) -> pd.DataFrame:
        """One row for each sample of the client's processes; none where they were not watched."""
        frame: pd.DataFrame = _frames().client_frame(self.folder.read_client())
        return frame

    @cached_property
    def server_series(self) -> pd.DataFrame:
        """One row for each value of a reading of the server's metrics; none where they were not read."""
        frame: pd.DataFrame = _frames().server_frame(self.folder.read_server())
        return frame

    def __repr__(self) -> str:
        """Folder, verdict and counts in one line."""
        metrics = self.summary
        latency, anchored = metrics.latency
        p50, p99 = (None, None) if anchored.scheduled is None else (anchored.scheduled.p50, anchored.scheduled.p99)
        percentiles = ", ".join(
            f"{latency.label} {name} {cell_text(value)} ms" for name, value in (("p50", p50), ("p99", p99)) if value is not None
        )
        parts = (f"{metrics.done:,} of {metrics.scheduled:,} requests done", percentiles, f"findings: {len(self.findings)}")
        validity = "valid" if self.valid else "NOT VALID"
        return printable(f"<Run {self.folder.path}: {'; '.join(part for part in (validity, *parts) if part)}>")

    def _repr_html_(self) -> str:
        """Verdict, findings and latencies, as a notebook shows them."""
        findings = "".join(f"<li>{html.escape(f'{f.severity.value}: {f.sentence}')}</li>" for f in self.findings)
        return (
            f"<p><b>{html.escape(printable(str(self.folder.path)))}</b>: {html.escape(verdict(self.report))}<br>"
            f"{html.escape(describe_run(self.report))}</p><ul>{findings}</ul>{html_table(latency_table(self.report))}"
        )


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open the folder of a finished run. Raises RunFolderError where ``path`` is no run, or the run has not ended."""
    folder = RunFolder(Path(path))
    document, manifest = folder.read_document()
    folder.check_finished(manifest)
    return Run(folder, MappingProxyType(dict(document)))


def _frames() -> ModuleType:
    """The module that imports pandas. Raises MissingLibraryError."""
    try:
        from reports.run_data import frames
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise MissingLibraryError("DataFrames need pandas: pip install 'inflight-bench[pandas]'") from error
    return frames

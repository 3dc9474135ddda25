"""All pictures of a run, by the section of the report that they belong to."""

from __future__ import annotations

from dataclasses import dataclass

from reports.render.picture import Picture
from reports.run.pictures.client import client_pictures
from reports.run.pictures.latency import latency_pictures
from reports.run.pictures.server import server_pictures
from reports.run.pictures.traffic import arrival_pictures, token_pictures
from reports.run_report import RunReport


@dataclass(frozen=True)
class RunPictures:
    latency: tuple[Picture, ...]
    arrivals: tuple[Picture, ...]
    tokens: tuple[Picture, ...]
    server: tuple[Picture, ...]
    client: tuple[Picture, ...]

    @property
    def all(self) -> tuple[Picture, ...]:
        return (*self.latency, *self.arrivals, *self.tokens, *self.server, *self.client)


def pictures_of(report: RunReport) -> RunPictures:
    """Those for which the run has data. Raises RunFolderError when a table of the folder is damaged."""
    return RunPictures(
        tuple(latency_pictures(report)),
        tuple(arrival_pictures(report)),
        tuple(token_pictures(report)),
        tuple(server_pictures(report.telemetry)),
        tuple(client_pictures(report.folder.read_client())),
    )

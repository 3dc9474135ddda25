"""The folder of one run, and ``run.json``, the manifest: everything that is needed to repeat the run."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from bench_errors import BenchError, ExitStatus
from bench_records.client_table import read_client_table
from bench_records.manifest import MANIFEST_SCHEMA, Document, Manifest, RunState, document_of, manifest_of
from bench_records.regular_file import read_bounded, regular
from bench_records.server_table import read_server_table
from bench_records.table import read_table
from bench_records.whole_file import write_json

_MOST_MANIFEST_BYTES = 16 << 20  # some kB are usual
_MOST_CHARACTERS = 300  # of a library's message
_Plan = TypeVar("_Plan")


class RunFolderError(BenchError):
    """A run folder cannot be read or written; the text names the file and the remedy."""

    exit_status = ExitStatus.USAGE


class _Folder(Protocol):
    @property
    def path(self) -> Path: ...


class NamedFile:
    """A file of a folder, by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: _Folder, _: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run's files."""

    path: Path

    manifest = NamedFile("run.json")
    requests = NamedFile("requests.parquet")
    summary = NamedFile("summary.json")
    csv = NamedFile("requests.csv")
    html = NamedFile("report.html")
    markdown = NamedFile("report.md")
    perfetto = NamedFile("perfetto.json")
    server_log = NamedFile("server.log")
    schedule = NamedFile("schedule.bin")
    client = NamedFile("client.parquet")
    server = NamedFile("server.parquet")
    machine_samples = NamedFile("samples-machine.bin")
    times_polls = NamedFile("times-polls.bin")
    perf_metrics = NamedFile("perf_metrics.json")
    gpu_samples = NamedFile("gpu.bin")

    @property
    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the folder that is at ``path`` now; None where none is."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None

    def journal(self, worker: int) -> Path:
        return self.path / f"journal-{worker}.bin"

    def journals(self) -> list[Path]:
        return sorted(self.path.glob("journal-*.bin"))

    def worker_samples(self, worker: int) -> Path:
        return self.path / f"samples-{worker}.bin"

    def client_samples(self) -> list[Path]:
        """Also those of a run that was cut in an older version, which called them ``probe-*.bin``."""
        return sorted((*self.path.glob("samples-*.bin"), *self.path.glob("probe-*.bin")))

    def scrapes(self, page: int) -> Path:
        """The file of one page of metrics."""
        return self.path / f"scrapes-{page}.bin"

    def all_scrapes(self) -> list[Path]:
        return sorted(self.path.glob("scrapes-*.bin"))

    def write_manifest(self, manifest: Manifest) -> None:
        """Write ``run.json`` whole or not at all. Raises OSError."""
        write_json(document_of(manifest), self.manifest)

    def read_manifest(self) -> Manifest:
        """Read ``run.json``. Raises RunFolderError where the folder is not a run's, or the file is damaged."""
        return self.read_document()[1]

    def read_document(self) -> tuple[Document, Manifest]:
        """Read ``run.json`` with all its keys, and as a manifest. Raises RunFolderError, as ``read_manifest`` does."""
        try:
            document = json.loads(read_bounded(regular(self.manifest), _MOST_MANIFEST_BYTES))
        except FileNotFoundError as error:
            raise RunFolderError(f"{self.path} is not a run folder: it has no run.json") from error
        except (OSError, ValueError, RecursionError) as error:
            raise unreadable(self.manifest, error) from error
        if not isinstance(document, dict) or document.get("schema") != MANIFEST_SCHEMA:
            raise RunFolderError(f"{self.manifest} is not a manifest of schema {MANIFEST_SCHEMA}")
        try:
            return document, manifest_of(document)
        except ValueError as error:
            raise unreadable(self.manifest, error) from error

    def is_whole(self) -> bool:
        """Whether it has the records of a run that was neither stopped by a user nor cut, and whose client could write down all
        that came. Raises RunFolderError, as ``read_manifest``.
        """
        if not self.requests.exists():
            return False
        manifest = self.read_manifest()
        came_to_its_end = manifest.state is RunState.DONE and not manifest.interrupted and manifest.recovered is None
        return came_to_its_end and manifest.problem is None

    def check_finished(self, manifest: Manifest) -> None:
        """Raise RunFolderError, with the remedy, where there are no records yet."""
        match manifest.state:
            case RunState.NOT_STARTED:
                raise RunFolderError(f"{self.path} holds a run that ended before its first request was sent; measure again")
            case RunState.RUNNING if self.journals():
                raise RunFolderError(
                    f"{self.path} holds a run that has not ended. If nothing runs there any more, it was cut: "
                    f"'bench recover {self.path}' makes its records from its journals"
                )
            case RunState.RUNNING:
                raise RunFolderError(f"{self.path} holds a run that was cut before its first request, or has just started")

    def read_requests(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read ``requests.parquet``, or some columns of it. Raises RunFolderError when it is absent or damaged."""
        try:
            return read_table(self.requests, columns)
        except FileNotFoundError as error:
            raise RunFolderError(f"{self.path} holds no requests.parquet: the run did not come to its end") from error
        except (OSError, pa.ArrowException, UnicodeError) as error:  # Arrow refuses a path that is not UTF-8
            raise unreadable(self.requests, error) from error

    def read_client(self) -> pa.Table | None:
        """Read ``client.parquet``; None where there is none. Raises RunFolderError when it is damaged."""
        return _read_optional(self.client, read_client_table)

    def read_server(self) -> pa.Table | None:
        """Read ``server.parquet``; None where there is none. Raises RunFolderError when it is damaged."""
        return _read_optional(self.server, read_server_table)


def is_directly_within(folder: str) -> bool:
    """Whether a folder that a plan names lies in the plan's own."""
    return Path(folder).name == folder and folder not in ("", "..")


def read_plan(path: Path, schema: int, of_document: Callable[[object], _Plan], what: str) -> _Plan:
    """Read the JSON document at ``path``, the plan of several runs, by ``of_document``. Raises RunFolderError when it is
    absent, so that its folder is no ``what``, damaged or of another schema.
    """
    try:
        document = json.loads(read_bounded(regular(path), _MOST_MANIFEST_BYTES))
        if document["schema"] != schema:
            raise RunFolderError(f"{path} has schema {document['schema']}; this bench reads {schema}")
        return of_document(document)
    except FileNotFoundError as error:
        raise RunFolderError(f"{path.parent} is no {what}: it has no {path.name}") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise unreadable(path, error if isinstance(error, OSError | ValueError) else ValueError(repr(error))) from error


def _read_optional(path: Path, read: Callable[[Path], pa.Table]) -> pa.Table | None:
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> RunFolderError:
    """The error of a damaged file in one sentence, whatever the library wrote about it."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return RunFolderError(f"{path} cannot be read: {' '.join(reason.split())[:_MOST_CHARACTERS]}")

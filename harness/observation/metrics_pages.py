"""The pages of metrics that a run reads, one or several: each is settled, sampled and counted by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from bench_records.manifest import Telemetry
from bench_records.run_folder import RunFolder
from harness.clients.transport.http_get import GetError, Headers, HttpStatusError
from harness.clients.transport.url import HttpUrl
from harness.observation.metrics_sampler import MetricsSampler, Sampled

Note = Callable[[str], None]

_NOTHING = Sampled(0, 0, None)


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Where a server exposes its metrics. ``model`` is a model that they must name, where the URL is only guessed.

    ``headers`` are for the server that the run measures, and are sent to no other. ``shown`` is the URL without its secrets.
    ``otherwise`` is the place to look at where this one has no metrics, as of another kind of server. ``of_target``: the page
    is at the address of the requests, so that what it says of its process is about the measured server.
    """

    url: HttpUrl
    period_s: float
    model: str | None = None
    headers: Headers = ()
    shown: str | None = None
    otherwise: MetricsSource | None = None
    of_target: bool = False

    def __str__(self) -> str:
        return str(self.url) if self.shown is None else self.shown


class MetricsPages:
    """The pages of ``sources``. Call ``open``, then ``begin`` at the run's start, and ``stop`` at its end.

    A page without metrics does not fail the run: ``note`` is called with the reason.
    """

    def __init__(self, folder: RunFolder, sources: Sequence[MetricsSource], note: Note) -> None:
        self._sources = list(sources)
        self._note = note
        self._folder = folder
        self._samplers: list[MetricsSampler | None] = []

    def open(self) -> None:
        """Find each page, and settle its counters."""
        if self._sources:
            with ThreadPoolExecutor(len(self._sources)) as pool:
                found = list(pool.map(self._find, range(len(self._sources)), self._sources))
            self._sources = [source for source, _ in found]
            self._samplers = [sampler for _, sampler in found]

    @property
    def server_began_at(self) -> float | None:
        """When the server's process began, by the only page that is at the target's address, as Unix time in s."""
        own = [number for number, source in enumerate(self._sources) if source.of_target]
        sampler = self._samplers[own[0]] if len(own) == 1 and self._samplers else None
        return None if sampler is None else sampler.server_began_at

    def begin(self, start_ns: int) -> None:
        """Start sampling; times count from ``start_ns`` (of ``now_ns``)."""
        for number, sampler in enumerate(self._samplers):
            try:
                if sampler is not None:
                    sampler.begin(start_ns)
            except OSError as error:
                self._samplers[number] = None
                self._note(f"The server's metrics cannot be written to disk, so they are not recorded: {error}")

    def stop(self) -> Telemetry | None:
        """Stop sampling, when the counters have settled. None where no page has metrics."""
        if not any(self._samplers):
            return None
        with ThreadPoolExecutor(len(self._samplers)) as pool:
            sampled = list(pool.map(lambda sampler: _NOTHING if sampler is None else sampler.stop(), self._samplers))
        pages = [
            Telemetry(url=str(source), period_s=source.period_s, **asdict(counts))
            for source, counts in zip(self._sources, sampled, strict=True)
        ]
        return pages[0] if len(pages) == 1 else _together(pages)

    def _find(self, number: int, source: MetricsSource, before: str = "") -> tuple[MetricsSource, MetricsSampler | None]:
        """The first place of ``source`` with metrics, and its sampler; ``before`` names those that had none."""
        sampler = MetricsSampler(source.url, self._folder.scrapes(number), source.period_s, source.headers, str(source))
        try:
            values = sampler.settle()
        except (GetError, ValueError) as error:
            tried = f"{before}{source} ({error})"
            answered = isinstance(error, HttpStatusError | ValueError)
            sampler.stop()
            if source.otherwise is not None and answered:
                return self._find(number, source.otherwise, f"{tried} or ")
            self._note(f"No metrics at {tried}, so they are not recorded; name another place with --metrics_url.")
            return source, None
        if source.model is not None and not any(f'"{source.model}"' in labels for _, labels in values):
            self._note(
                f"{source} has no model {source.model}, so its metrics are not recorded; name another with --metrics_url."
            )
            sampler.stop()
            return source, None
        return source, sampler


def _together(pages: Sequence[Telemetry]) -> Telemetry:
    """What a manifest has of several pages."""
    failures = (page.first_failure for page in pages if page.first_failure is not None)
    return Telemetry(
        url=", ".join(str(page.url) for page in pages),
        period_s=pages[0].period_s,
        scrapes=sum(page.scrapes or 0 for page in pages),
        failed=sum(page.failed or 0 for page in pages),
        first_failure=next(failures, None),
        pages=tuple(pages),
    )

"""``perf_metrics.json``: what a server measured of each request, polled from it during a run.

trtllm-serve keeps the times of the last ``perf_metrics_max_requests`` requests, and each GET of its ``/perf_metrics`` takes
them out of its queue (``get_perf_metrics`` in its tensorrt_llm/serve/openai_server.py), so that a long run needs polls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench_records.manifest import PolledTimes
from bench_records.whole_file import written_whole
from harness.clients.protocol import NOT_JSON
from harness.clients.transport.http_get import GetError, Headers, HttpGetter
from harness.clients.transport.url import HttpUrl
from harness.host.clock import now_ns
from harness.host.periodic import Periodic
from harness.observation.metrics_file import Scrape, ScrapeWriter, read_scrapes

PERIOD_S = 1.0
_MOST_BYTES = 256 << 20  # of all answers: 600 bytes a request are usual
_LAST_POLLS = 8
_BETWEEN_LAST_S = 0.25  # a server notes a request after it has sent the end of its answer


class TimesPoller:
    """Polls ``url`` into ``path``, from a thread of the process that starts the workers. Call ``drain``, then ``begin`` at the
    run's start, and ``stop`` at its end.
    """

    def __init__(self, url: HttpUrl, path: Path, headers: Headers = (), period_s: float = PERIOD_S) -> None:
        self._url = url
        self._path = path
        self._getter = HttpGetter(url, headers)
        self._period_s = period_s
        self._periodic: Periodic | None = None
        self._writer: ScrapeWriter | None = None
        self._polls = self._failed = self._records = self._bytes = 0
        self._first_failure: str | None = None

    def drain(self) -> None:
        """Empty the server's queue of what was before the run. Raises GetError, also for an answer that is no list."""
        try:
            _counted(self._getter.get())
        except GetError:
            self._getter.close()
            raise

    def begin(self) -> None:
        """Raises OSError."""
        self._writer = ScrapeWriter(self._path, str(self._url))
        self._periodic = Periodic(self._period_s, self._sample, "times-poller")

    def stop(self) -> PolledTimes:
        """Poll until the queue is empty, for a limited time."""
        if self._periodic is not None and self._periodic.stop():
            for _ in range(_LAST_POLLS):
                time.sleep(_BETWEEN_LAST_S)
                if not self._poll():
                    break
        if self._writer is not None:
            self._writer.close()
        self._getter.close()
        return PolledTimes(
            url=str(self._url),
            period_s=self._period_s,
            polls=self._polls,
            failed=self._failed,
            first_failure=self._first_failure,
            records=self._records,
        )

    def _sample(self) -> None:
        self._poll()

    def _poll(self) -> int:
        """The number of records that came."""
        assert self._writer is not None
        if self._bytes > _MOST_BYTES:
            return 0
        self._polls += 1
        sent_ns = now_ns()
        try:
            text = self._getter.get()
            count = _counted(text)
            if count:
                self._writer.append(Scrape(sent_ns, now_ns(), text))
        except (GetError, OSError) as error:
            self._note_failure(str(error))
            return 0
        self._records += count
        self._bytes += len(text)
        if self._bytes > _MOST_BYTES:
            self._note_failure(f"more than {_MOST_BYTES >> 20} MiB came; later ones were not read")
        return count

    def _note_failure(self, reason: str) -> None:
        self._failed += 1
        self._first_failure = self._first_failure or reason


def join_polls(polls: Path, path: Path) -> None:
    """Write the records of all polls as one list, the same as one answer of the server. Raises OSError and JournalError."""
    with written_whole(path) as temporary, temporary.open("wb") as file:
        between = b"["
        for record in _records(polls):
            file.write(between + record)
            between = b",\n"
        file.write(b"[]" if between == b"[" else b"]")


def _records(polls: Path) -> Iterator[bytes]:
    for _, scrape in read_scrapes(polls):
        yield from map(bytes, msgspec.json.decode(scrape.text, type=list[msgspec.Raw]))


def _counted(text: bytes) -> int:
    """How many records an answer has. Raises GetError for one that is no list."""
    try:
        return len(msgspec.json.decode(text, type=list[msgspec.Raw]))
    except NOT_JSON as error:
        raise GetError("the answer is no JSON list") from error

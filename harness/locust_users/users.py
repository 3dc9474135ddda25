"""The users: each sends one request after another, and reports what each was like."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

import gevent
from locust import User, task
from locust.env import Environment
from locust.exception import StopTest

from bench_errors import BenchError
from harness.locust_users.pacing import planned_starts_s
from harness.locust_users.reporting import report
from harness.locust_users.settings import options_of, read_settings
from harness.locust_users.traffic import connect_openai, connect_triton, traffic_of
from harness.recording.schedule_summary import user_free_ns
from workloads.arrivals.law import EXPONENTIAL, parse_law


class ServingUser(User):
    """A user of a server of language models. Subclasses name its protocol."""

    abstract = True
    connect: ClassVar[Any]  # a Connect, which a subclass names as a static method

    def __init__(self, environment: Environment) -> None:
        """Raises StopTest where the server cannot be driven or the dataset cannot be read."""
        super().__init__(environment)
        settings = read_settings(options_of(environment))
        runner: Any = environment.runner  # of this process or a worker: both have an index
        worker = max(0, runner.worker_index)
        try:
            self.traffic = traffic_of(type(self).connect, self.host, settings, worker)
        except BenchError as error:
            raise _stop(self, error) from None
        self._connection = self.traffic.connection()
        self._started_s = time.monotonic()
        self._starts_s: Iterator[float] | None = None
        if settings.gap_s is not None:
            law = EXPONENTIAL if settings.arrival is None else parse_law(settings.arrival)
            self._starts_s = planned_starts_s(law, settings.gap_s, settings.seed, (worker << 20) + next(self.traffic.users))

    def on_start(self) -> None:
        """Wait for the first planned start."""
        self.wait()

    def wait_time(self) -> float:
        """The time until the next planned start; 0 where it has passed, or nothing is planned."""
        if self._starts_s is None:
            return 0.0
        return max(0.0, self._started_s + next(self._starts_s) - time.monotonic())

    @task
    def ask(self) -> None:
        """One request, from its sending to the last byte of its answer."""
        record, answer_bytes = self.traffic.send_next(self._connection)
        report(record, self.traffic.model, answer_bytes, self.environment.events.request.fire)
        ended_ns = record.done_ns or 0
        gevent.sleep((user_free_ns(ended_ns, record.outcome) - ended_ns) / 1e9)  # a server that restarts is not flooded

    def on_stop(self) -> None:
        self._connection.close()


class TritonUser(ServingUser):
    """Streams from a Triton server over HTTP (``generate_stream``): the models ``ensemble`` and ``tensorrt_llm_bls``."""

    connect = staticmethod(connect_triton)


class OpenAIUser(ServingUser):
    """Streams chat completions from a server that speaks OpenAI's protocol."""

    connect = staticmethod(connect_openai)


def _stop(user: User, error: BenchError) -> StopTest:
    """The exception that ends the test; a worker's master gets the error, too, and the program its exit status."""
    problem = StopTest(str(error).replace("--url", "--host", 1))  # the option of bench is another one here
    user.environment.process_exit_code = int(error.exit_status)
    user.environment.events.user_error.fire(user_instance=user, exception=problem, tb=None)
    return problem

"""A locustfile for people who work with Locust: users that stream from a language model, with TTFT, TPOT and tokens.

    locust -f harness/locustfile.py --headless -u 4 -t 20s --host http://127.0.0.1:8000
    locust -f harness/locustfile.py OpenAIUser --headless -u 4 -t 20s --host http://127.0.0.1:8000
    locust -f harness/locustfile.py --headless --host http://127.0.0.1:8000 --rate_profile 'stages:2/s*60s,8/s*60s'

``TritonUser`` (the default) sends ``generate_stream`` to ``ensemble`` or ``tensorrt_llm_bls``, ``OpenAIUser`` sends chat
completions. ``python -m harness.locustfile`` lists their options, which ``locust --help`` does not; each has an environment
variable, too.

Each request makes an event E2E, its own, one each of TTFT, TPOT and tokens, and one of ITL for each gap (ICL where the server
does not count tokens). Definitions, encoding and decoding are those of ``bench``, from the time of sending. The line
"Aggregated" and the charts count E2E alone. A failure counts by its kind and has no response time.

What the numbers are not, since the load and the statistics are Locust's:

- The load is a closed loop: a user waits for its answer. While a server stalls, it gets fewer requests, and the table lacks the
  waiting of those that would have come (coordinated omission). ``bench --request_rate`` sends on an absolute schedule, and
  counts latency from it.
- Percentiles come from values rounded to 3 significant digits (Locust's own rule is 2, and whole ms), without intervals, and
  include the ramp. ``bench`` keeps every value, and gives each percentile an interval.
- Sending, reading, decoding and statistics share one thread, so users delay each other's time stamps. Nothing checks whether
  that spoilt the numbers; ``bench`` measures it, and marks the run invalid.
"""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from typing import Any

import gevent
import locust.stats
from configargparse import ArgParser
from locust import events
from locust.env import Environment
from locust.exception import StopTest
from locust.runners import WorkerRunner

from bench_errors import ExitStatus
from harness.locust_users.reporting import bucket, leave_parts_out_of_total
from harness.locust_users.settings import Settings, add_settings, options_of, read_settings
from harness.locust_users.shape import RateProfileShape
from harness.locust_users.users import OpenAIUser, TritonUser

__all__ = ["OpenAIUser", "TritonUser"]


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser) -> None:
    """Add the options of the users."""
    add_settings(parser)


@events.init.add_listener
def set_up(environment: Environment, **_: Any) -> None:
    """Choose the users, their number and how Locust counts; a contradiction between options ends the program."""
    options = options_of(environment)
    settings = read_settings(options)
    problem = settings.problem()
    if problem is not None:
        logging.getLogger(__name__).error(problem)
        sys.exit(ExitStatus.USAGE)
    setattr(locust.stats, "bucket_response_time", bucket)  # noqa: B010, which Locust intends; its annotation is int
    leave_parts_out_of_total(environment.stats)
    hub = gevent.get_hub()
    hub.NOT_ERROR = (*hub.NOT_ERROR, StopTest)  # its text is logged; a traceback would hide it
    if not options.user_classes and not options.class_picker:
        environment.user_classes[:] = [TritonUser]
    if not environment.stop_timeout:
        environment.stop_timeout = settings.request_timeout  # requests in flight end before their users do
    if settings.rate_profile is not None and not isinstance(environment.runner, WorkerRunner):
        follow_profile(environment, settings)


def follow_profile(environment: Environment, settings: Settings) -> None:
    """Let the number of users follow --rate_profile."""
    shape = RateProfileShape(settings, options_of(environment).run_time)
    shape.runner = environment.runner
    environment.shape_class = shape


if __name__ == "__main__":
    listing = ArgParser("locust -f harness/locustfile.py", add_help=False, add_env_var_help=False, add_config_file_help=False)
    add_settings(listing)
    listing.print_help()

"""A load shape of Locust that follows a rate profile of ``bench``, by the number of users."""

from __future__ import annotations

import math

from locust import LoadTestShape

from harness.locust_users.pacing import users_at, users_at_rate
from harness.locust_users.settings import DEFAULT_GAP_S, Settings
from workloads.arrivals.rate_profile import parse_profile


class RateProfileShape(LoadTestShape):
    """Users = rate · seconds per request, once a second (Little's law: each user has one request in that time).

    In a closed loop this is the rate at which requests would come if every answer took less than the seconds per request. A
    user whose answers take longer sends fewer: the rate falls below the profile just when the server is overloaded, and only
    the column req/s shows it. ``bench --rate_profile`` sends at the profile's times whatever the server does.
    """

    abstract = True  # installed for --rate_profile alone, not found in the locustfile

    def __init__(self, settings: Settings, run_time_s: float | None) -> None:
        super().__init__()
        assert settings.rate_profile is not None
        profile = parse_profile(settings.rate_profile)
        self._profile = profile
        self._users_per_rate = (settings.request_rate or 1.0) * (settings.gap_s or DEFAULT_GAP_S)
        self._end_s = min(profile.end_s or math.inf, run_time_s or math.inf)
        self._most_users = users_at_rate(profile.peak, self._users_per_rate)

    def tick(self) -> tuple[int, float] | None:
        """The users of this moment, which come or go within a second; None at the end of the profile, or of --run-time."""
        at_s = self.get_run_time()
        if at_s >= self._end_s:
            return None
        return users_at(self._profile, at_s, self._users_per_rate), float(self._most_users)

"""Texts of errors that may repeat a server's."""

from __future__ import annotations

from harness.clients.openai_server import unlisted_model
from harness.clients.triton.statistics import StatisticsError
from harness.errors import RunError, TargetError


def test_the_text_of_a_server_is_cut() -> None:
    text = "x" * 2_900_000
    assert len(str(TargetError(text))) < 5_000
    assert len(str(RunError(text))) < 5_000
    assert len(str(StatisticsError(text))) < 5_000
    assert len(unlisted_model("m", (text,) * 30) or "") < 5_000
    assert str(TargetError("short")) == "short"

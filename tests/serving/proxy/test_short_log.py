"""The log of the proxy: bounded, whatever clients send."""

from __future__ import annotations

import logging

import pytest

from serving.proxy.short_log import ShortLog


def test_log_is_few_short_lines_without_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("library")
    logger.addHandler(ShortLog())
    try:
        raise ValueError("a" * 100_000)
    except ValueError:
        logger.exception("Error handling request\n\x1b[2J")
    for _ in range(500):
        logger.error("b" * 100_000)
    first, *others, last = capsys.readouterr().out.splitlines()
    assert first == "proxy: Error handling request  [2J: ValueError"
    assert others == ["proxy: " + "b" * 300] * 99
    assert last == "proxy: more is not logged"

"""The settings that the help of a client's commands lists."""

from __future__ import annotations

import re

import pytest

from pubsub.cli import main

OF_PUTS = {"--window", "--outbox-bytes-max", "--publisher-records", "--publisher-bytes", "--linger-seconds"}
OF_GETS = {"--prefetch-records", "--prefetch-bytes"}


@pytest.mark.parametrize(("name", "used"), [("put", OF_PUTS), ("get", OF_GETS)])
def test_the_help_of_put_and_get_lists_the_settings_that_they_use(
    name: str, used: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["client", "c", name, "--help"]) == 0
    shown = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert shown & (OF_PUTS | OF_GETS | {"--handler-attempts"}) == used
    assert {"--tries", "--power-safe", "--record", "--timeout-seconds"} <= shown

"""The model of witnesses: with every rule nothing is found, and each rule that is left out is missed."""

from __future__ import annotations

import pytest

from tests.server.witnesses import LEFT_OUT, Rules, tried


def test_no_server_believes_to_be_alone_beside_messages_that_another_acknowledged() -> None:
    found, asked, text = tried(Rules(), 500)
    assert (found, text) == (0, "")
    assert asked > 1_000


@pytest.mark.parametrize("title", LEFT_OUT)
def test_each_rule_is_needed(title: str) -> None:
    found, _, _ = tried(LEFT_OUT[title], 200)
    assert found

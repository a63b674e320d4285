"""Commands for a database without the extra `postgres`: one line that names the extra."""

from __future__ import annotations

import sys

import pytest

from pubsub.cli import main


@pytest.mark.parametrize(
    "words", [["client", "w1", "subscribe", "t"], ["relay"], ["relay", "--install"], ["relay", "--print"]]
)
def test_a_missing_driver_is_one_line_with_the_remedy(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("psycopg", "pubsub.client.storage.postgres."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    place = ["--proxy", "tcp://127.0.0.1:1", "--database", "postgresql://db/shop"]
    assert main([*words, *place]) == 8
    assert "pip install '.[postgres]'" in capsys.readouterr().err

"""A proxy that refuses for a moment, before it has read its access list, causes no message to the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub import Client


def test_a_lasting_refusal_is_logged_once_and_a_passing_one_is_not(
    tmp_path: Path, nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Client("c", proxies=[nowhere, nowhere.replace("127.0.0.1", "localhost")], directory=tmp_path) as client:
        session = client._session
        wire, core = session._wire, session.core

        def says(text: str, now: float) -> int:
            caplog.clear()
            wire.refusing.append((0, text))
            wire.receive_refusals(core, now)
            return len([record for record in caplog.records if "refuses" in record.getMessage()])

        with session.lock:
            assert says("p1 refuses", 100.0) == 0
            assert core.refusing.refusals == {0: "p1 refuses"}, "it is left out of turn at once"
            assert says("", 101.0) == 0
            assert says("p1 refuses", 101.5) == 0
            assert says("p1 refuses", 102.5) == 0
            assert says("p1 refuses", 103.6) == 1
            assert says("p1 refuses", 110.0) == 0
            assert says("p1 refuses otherwise", 111.0) == 0
            assert says("p1 refuses otherwise", 113.0) == 1

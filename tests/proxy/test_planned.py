"""A planned change of a server's primary is no outage, unless it does not end; a server without topics is no outage."""

from __future__ import annotations

import json

from pubsub.protocol import Report, Status
from pubsub.proxy.notices import Routine
from tests.proxy.stage import Stage
from tests.proxy.test_members import ROW, STORE, A, B, Pair, Prepare


def warnings(stage: Stage) -> list[str]:
    stage.now += 0.3
    (said,) = [one for one in stage.request(Report("ann", "-")) if not one.to_server]
    assert isinstance(said.message, Status)
    return [str(text) for text in json.loads(bytes(said.message.body))["warnings"] if "unavailable" in text]


def switched() -> Pair:
    """The other member takes over as planned, and the first one's link is closed by then."""
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.core.notices.take()
    pair.hear(Prepare("s1", STORE, B, 150, 7, "handover"))
    pair.core.servers.presence.unreachable(b"a", pair.now)
    return pair


def test_a_planned_change_causes_no_warning() -> None:
    pair = switched()
    (line,) = pair.core.notices.take()
    assert isinstance(line, Routine)
    assert "changes its primary, as planned" in line
    assert warnings(pair) == []
    pair.serve(B, 150)
    assert all(isinstance(line, Routine) for line in pair.core.notices.take())
    pair.sleep(1.0, "b")
    pair.core.servers.presence.unreachable(b"b", pair.now)
    (line,) = pair.core.notices.take()
    assert line == "the connection to server s1 is closed; topics that it alone holds are unavailable: 1"


def test_a_planned_change_that_does_not_end_causes_one_warning() -> None:
    pair = switched()
    pair.core.notices.take()
    pair.sleep(10.0)
    lines = [line for line in pair.core.notices.take() if "unavailable" in line]
    assert lines == ["the connection to server s1 is closed; topics that it alone holds are unavailable: 1"]
    assert not isinstance(lines[0], Routine)
    assert len(warnings(pair)) == 1


def test_an_unplanned_change_causes_a_warning_at_once() -> None:
    pair = Pair(ROW)
    pair.serve(A, 100)
    pair.core.notices.take()
    pair.hear(Prepare("s1", STORE, B, 150, 7, "takeover"))
    pair.core.servers.presence.unreachable(b"a", pair.now)
    assert not isinstance(pair.core.notices.take()[0], Routine)
    assert len(warnings(pair)) == 1


def test_a_server_without_topics_makes_nothing_unavailable() -> None:
    stage = Stage()
    stage.announce("s1", {})
    stage.core.notices.take()
    stage.core.servers.presence.unreachable(b"s1", stage.now)
    (line,) = stage.core.notices.take()
    assert line == "the connection to server s1 is closed; it holds no topic"
    assert isinstance(line, Routine)

"""How a primary says that its standby stands."""

from __future__ import annotations

from pubsub.server.standby.status import StandbyStatus
from tests.standby.duo import STEP, Duo


class Watched:
    """Two members, the first of which is the primary, and its status."""

    def __init__(self) -> None:
        self.duo = Duo().started()
        self.standing = StandbyStatus(self.duo.now)

    def run(self, seconds: float, *, copying: bool = False) -> list[str]:
        """The states that it went through."""
        states = []
        for _ in range(round(seconds / STEP)):
            self.duo.run(STEP)
            self.standing.look(self.duo.a.member, copying, self.duo.now)
            states.append(self.standing.state)
        return list(dict.fromkeys(states))

    def facts(self) -> dict[str, object]:
        return self.standing.facts(self.duo.a.member, 41, self.duo.now)


def test_a_status_in_sync_shows_since_when_and_the_lag() -> None:
    watched = Watched()
    assert watched.run(4.0) == ["in sync"]
    facts = watched.facts()
    assert (facts["state"], facts["without_seconds"], facts["copied_percent"]) == ("in sync", None, None)
    assert 3.5 <= float(str(facts["since_seconds"])) <= 4.0
    assert facts["lag_bytes"] == 0
    watched.duo.cut = {"a" * 16}
    watched.duo.a.put(1)
    facts = watched.facts()
    assert int(str(facts["lag_loops"])) >= 1
    assert int(str(facts["lag_bytes"])) > 0


def test_a_returned_standby_is_reported_with_the_time_without_it() -> None:
    watched = Watched()
    watched.run(1.0)
    watched.duo.b.crash()
    assert watched.run(5.0) == ["in sync", "alone"]
    facts = watched.facts()
    assert float(str(facts["without_seconds"])) > 3.0
    assert facts["lag_loops"] is None
    watched.duo.a.put(1)
    watched.duo.b.start()
    states = watched.run(15.0)
    assert states[0] == "alone"
    assert states[-1] == "in sync"
    assert watched.facts()["without_seconds"] is None


def test_a_status_while_copying_shows_the_progress() -> None:
    watched = Watched()
    watched.duo.b.crash()
    watched.run(5.0)
    assert watched.run(1.0, copying=True) == ["copying"]
    assert watched.facts()["copied_percent"] == 41
    assert float(str(watched.facts()["without_seconds"])) > float(str(watched.facts()["since_seconds"]))


def test_a_primary_names_the_addresses_of_both_members() -> None:
    watched = Watched()
    watched.run(1.0)
    told = watched.standing.report(watched.duo.a.member, "tcp://a:1", 0, watched.duo.now)
    other = watched.duo.b.member.identity
    assert told["addresses"] == {"a" * 16: "tcp://a:1", other.member: other.address}
    assert other.address

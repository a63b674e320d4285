"""The status of servers with a standby."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pubsub import console
from pubsub.cli.reports import picture
from pubsub.cli.standbys import clock
from pubsub.cli.status import _standbys
from pubsub.client.requests import NoAnswer
from tests.cli.test_reports import proxy_report, server_report

A, B = "a" * 16, "b" * 16


def voting(name: str, *, votes: bool = True, term: int = 7, alive: bool = True) -> dict[str, Any]:
    register = {"store": "5" * 16, "server": "s1", "votes": votes, "primary": A if votes else "", "term": term}
    register |= {"address": "tcp://a:1", "members": [A, B], "in_sync": [A], "ballot": 9, "promised": 9}
    return proxy_report(name, s1=alive) | {"registers": [register]}


def primary(state: str, **facts: Any) -> dict[str, Any]:
    standby = {"member": A, "role": "primary", "address": "tcp://a:1", "term": 7, "members": [A, B], "held": 0}
    standby |= {"in_sync": [A, B], "state": state, "since_seconds": 250.0, "without_seconds": None}
    standby |= {"votes": {}, "lag_loops": None, "lag_bytes": None, "copied_percent": None}
    return server_report({}) | {"standby": standby | facts}


def status(server: dict[str, Any] | None, *proxies: dict[str, Any], silent: Sequence[int] = ()) -> dict[str, Any]:
    reports: dict[str, Any] = {one["proxy"]: one for one in proxies or (voting("p1"), voting("p2"), voting("p3"))}
    reports |= {f"p{number}": NoAnswer("no answer") for number in silent}
    return picture(reports, {} if server is None else {"s1": server})


def test_a_standby_in_sync_is_shown_and_nothing_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    found = status(primary("in sync", lag_loops=2, lag_bytes=2048, held=1))
    (row,) = found["standbys"]
    assert (row["server"], row["state"], row["primary"], row["votes"]) == ("s1", "in sync", A, [3, 3])
    assert found["warnings"] == []
    console.print_table(_standbys(found))
    shown = capsys.readouterr().out
    for text in ("in sync", "00:04:10", A, B, "2 loops, 2.0 KiB", "3 of 3"):
        assert text in shown


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("alone", "the other member is not connected"),
        ("catching up", "the other member is catching up"),
        ("copying", "the other member is being copied: 41 %"),
    ],
)
def test_a_server_without_a_standby_in_sync_is_an_alarm_that_says_since_when(state: str, why: str) -> None:
    found = status(primary(state, without_seconds=3850.0, copied_percent=41, in_sync=[A]))
    assert found["warnings"] == [f"server s1 has had no standby in sync for 01:04:10 ({why})"]


def test_a_server_that_is_to_have_one_member_is_no_alarm() -> None:
    assert status(primary("single", members=[A], in_sync=[A]))["warnings"] == []


def test_a_register_that_waits_for_a_proxy_is_an_alarm() -> None:
    found = status(primary("making", in_sync=[A]), voting("p1"), voting("p2", votes=False))
    assert found["warnings"] == ["server s1 has no standby yet: 1 of 2 proxies have answered, start the others"]
    assert status(primary("making", since_seconds=1.0))["warnings"] == []


def test_the_status_without_a_primary_names_the_member_to_start() -> None:
    found = status(None, *(voting(name, alive=False) for name in ("p1", "p2", "p3")))
    (row,) = found["standbys"]
    assert (row["state"], row["in_sync"], row["held"]) == ("no heartbeat", [A], None)
    (warning,) = (text for text in found["warnings"] if "start member" in text)
    assert f"on its host start member {A} at tcp://a:1, which is in sync" in warning
    assert "pubsub server start --id s1 --bind tcp://a:1 --proxies-file FILE --dir DIR" in warning
    console.print_table(_standbys(found))


def test_both_members_are_named_with_the_addresses_of_the_last_report() -> None:
    told = {"seconds_ago": 9.0, "topics": {}, "standby": {"addresses": {A: "tcp://old:1", B: "tcp://b:1"}}}
    proxies = [voting(name, alive=False) for name in ("p1", "p2", "p3")]
    for proxy in proxies:
        proxy["servers"][0] |= {"gone_seconds": 72.0, "last_report": told}
        proxy["registers"][0]["in_sync"] = [A, B]
    found = status(None, *proxies)
    (warning,) = (text for text in found["warnings"] if "start member" in text)
    assert f"for 00:01:12: on its host start member {A} at tcp://a:1 or {B} at tcp://b:1, which is in sync" in warning
    assert found["standbys"][0]["since_seconds"] == 72.0


def test_the_latest_term_of_the_proxies_is_shown() -> None:
    found = status(None, voting("p1", term=9), voting("p2", term=7), voting("p3", term=8))
    assert found["standbys"][0]["term"] == 9


FEW = "server s1 cannot change its primary: only "


@pytest.mark.parametrize(
    ("state", "votes", "help_"),
    [
        ("in sync", (True, False, False), "1 of 3 proxies vote; the others have lost their directories; they get"),
        (
            "in sync",
            (False, False, False),
            "0 of 3 proxies vote; they have lost their directories; they get their votes",
        ),
        ("alone", (False, False, False), "get their votes back when the other member is up: start it"),
        ("in sync", (True, None, None), "1 of 3 proxies vote; start the 2 that do not answer"),
    ],
)
def test_too_few_votes_cause_a_warning_with_the_remedy(state: str, votes: tuple[bool | None, ...], help_: str) -> None:
    reports = [voting(f"p{number}", votes=vote is True) for number, vote in enumerate(votes)]
    found = status(
        primary(state, without_seconds=9.0),
        *reports,
        silent=[number for number, vote in enumerate(votes) if vote is None],
    )
    (said,) = [text for text in found["warnings"] if text.startswith(FEW)]
    assert help_ in said
    assert ("start the" in said) is (None in votes)


def test_proxies_without_votes_and_no_primary_cause_a_warning_with_the_remedy() -> None:
    found = status(None, *(voting(name, votes=False, alive=False) for name in ("p1", "p2", "p3")))
    (said,) = [text for text in found["warnings"] if text.startswith(FEW)]
    assert "start both members" in said
    assert "pubsub server promote --id s1" in said


def test_a_cluster_without_standbys_shows_none() -> None:
    assert picture({"x": proxy_report("p1", s1=True)}, {"s1": server_report({})})["standbys"] == []


def test_a_long_time_is_shown_in_hours() -> None:
    assert clock(100 * 3600 + 59.9) == "100:00:59"

"""Lasting requests end when their token is revoked: streams, long polls, the page's events, a slow body."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pubsub.gateway.problems import Problem
from pubsub.gateway.sessions import Sessions
from pubsub.web.tokens import User, Users, digest, new_token, parse_users
from tests.faults.cluster import Cluster
from tests.gateway.serving import CLIENT, Gateway, parsed

SECONDS = 10.0
"""Until what lasted must have ended; it takes about one where the machine is idle."""


def users(*lines: str) -> Users:
    return parse_users(lines, "tokens")


ALICE = f"alice th_{digest('a')} get=own/* put=own/*"


def may_get(user: User) -> bool:
    return user.may_get("own/t")


@pytest.mark.parametrize("now", [
    users(), users(f"alice th_{digest('b')} get=*"), users(f"bob th_{digest('a')} get=*"),
    users(f"alice th_{digest('a')} put=* get=other"),
])  # fmt: skip
def test_a_lasting_request_learns_that_its_right_is_lost(now: Users) -> None:
    sessions = Sessions(users(ALICE))
    alice = sessions.users.find("a")
    assert alice is not None
    with sessions.lasting("a", alice, may_get) as lost, sessions.lasting("a", alice, lambda user: True) as other:
        sessions.users = users(ALICE, f"bob th_{digest('b')} get=*")
        assert not lost.is_set()
        sessions.users = now
        assert lost.is_set()
        assert other.is_set() == (now.find("a") is None or now.find("a").name != "alice")  # type: ignore[union-attr]
    with pytest.raises(Problem, match="revoked"):
        sessions.check("a", alice, may_get)


def test_a_right_lost_before_the_beginning_is_reported_at_once() -> None:
    sessions = Sessions(users(ALICE))
    alice = sessions.users.find("a")
    assert alice is not None
    sessions.users = users()
    with sessions.lasting("a", alice, may_get) as lost:
        assert lost.is_set()


def test_a_gateway_without_tokens_never_takes_a_right() -> None:
    sessions = Sessions(Users())
    nobody = sessions.users.find(None)
    assert nobody is not None
    with sessions.lasting(None, nobody, may_get) as lost:
        sessions.check(None, nobody, may_get)
        assert not lost.is_set()


@pytest.fixture
def revoking(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Gateway, Callable[[], None]]]:
    """A gateway with one token, and a call that revokes it."""
    tokens, token = tmp_path / "tokens", new_token()
    other = f"other th_{digest(new_token())} get=*\n"
    tokens.write_text(f"{other}alice th_{digest(token)} put=* get=* status\n")
    tokens.chmod(0o600)
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens), token=token) as gateway:
        yield gateway, lambda: tokens.write_text(other) and None


@pytest.mark.slow
def test_a_revoked_token_keeps_no_stream_no_long_poll_and_no_page(
    revoking: tuple[Gateway, Callable[[], None]],
) -> None:
    gateway, revoke = revoking
    for name in ("s", "p"):
        gateway.subscribe("revoked", name)
    gateway.put("revoked", b"before")
    bearer = {"authorization": f"Bearer {gateway.token}"}
    found: dict[str, object] = {}
    gateway.take("revoked", "p", 1)
    polling = threading.Thread(target=lambda: found.update(
        poll=gateway.ask("GET", "/topics/revoked/subscribers/p/messages?wait=60")
    ))  # fmt: skip
    polling.start()
    slow = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=SECONDS)
    slow.putrequest("POST", "/topics/revoked/messages")
    slow.putheader("authorization", bearer["authorization"])
    slow.putheader("content-length", "2")
    slow.endheaders(b"x")
    stream = f"{gateway.url}/topics/revoked/stream?subscriber=s"
    with (
        CLIENT.stream("GET", stream, headers=bearer) as events,
        CLIENT.stream("GET", f"{gateway.url}/live?access_token={gateway.token}") as live,
    ):
        came, shown = parsed(events.iter_lines()), parsed(live.iter_lines())
        assert '"before"' in next(came)["data"]
        next(shown)
        revoke()
        started = time.monotonic()
        (last,) = list(came)
        assert (last["event"], "not-authenticated" in last["data"]) == ("problem", True)
        assert len(list(shown)) <= 2
        polling.join(SECONDS)
        assert time.monotonic() - started < SECONDS
    assert found["poll"].status_code == 401  # type: ignore[attr-defined]
    slow.send(b"y")
    assert slow.getresponse().status == 401
    slow.close()

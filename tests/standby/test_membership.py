"""The members that may follow a server, and the reasons for the others.

The rule is docs/explanation/register.md, R12.
"""

from __future__ import annotations

import pytest

from pubsub.protocol.standby import Follow
from pubsub.server.standby.membership import digest, refusal, sentence

PROXIES = ("tcp://p1:1", "tcp://p2:1")


def follow(server: str = "s1", proxies: str = digest(PROXIES)) -> Follow:
    return Follow(server, "5" * 16, "a" * 16, 1, 1, proxies=proxies)


def test_a_member_of_the_same_server_and_the_same_proxies_may_follow() -> None:
    assert refusal(follow(), "s1", PROXIES) == ""
    assert refusal(follow(), "s1", tuple(reversed(PROXIES))) == ""


@pytest.mark.parametrize(
    ("asked", "members", "said"),
    [
        (follow("s2"), (), "tcp://a:1 is server s1, not s2: correct --standby-of or --id"),
        (follow(proxies=digest(["tcp://p9:1"])), (), "server s1 at tcp://a:1 names other proxies: "),
        (follow(), ("b" * 16, "c" * 16), f"two members already ({'b' * 16} and {'c' * 16}): run pubsub server"),
    ],
)
def test_a_refused_member_gets_the_reason(asked: Follow, members: tuple[str, ...], said: str) -> None:
    reason = refusal(asked, "s1", PROXIES, members)
    assert reason
    assert " " not in reason
    assert said in sentence(reason, asked.sender, "tcp://a:1")


def test_a_reason_of_a_later_release_is_shown_unchanged() -> None:
    assert sentence("not_today", "s1", "tcp://a:1") == "tcp://a:1 refuses this member as a standby: not today"

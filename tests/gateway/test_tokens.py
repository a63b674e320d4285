from __future__ import annotations

import pytest

from pubsub.errors import ConfigurationError
from pubsub.gateway.tokens import ANYBODY, Users, digest, new_token, parse_users

TOKEN = new_token()
LINE = f"alice th_{digest(TOKEN)}"


def test_a_token_is_its_users_with_the_rights_of_the_line() -> None:
    users = parse_users(["# tokens", "", f"{LINE} put=orders/*,audit get=orders/eu  # hers"], "f")
    alice = users.find(TOKEN)
    assert alice is not None
    assert alice.name == "alice"
    assert alice.may_put("orders/us")
    assert alice.may_put("audit")
    assert not alice.may_put("other")
    assert alice.may_get("orders/eu")
    assert not alice.may_get("orders/us")
    assert not alice.status


def test_who_may_operate_may_see_the_status() -> None:
    user = parse_users([f"{LINE} operate"], "f").find(TOKEN)
    assert user is not None
    assert user.status
    assert user.operate


def test_a_token_that_is_not_there_is_nobodys() -> None:
    users = parse_users([LINE], "f")
    assert users.find(None) is None
    assert users.find("") is None
    assert users.find(TOKEN + "x") is None


def test_without_a_file_everybody_may_do_everything() -> None:
    assert Users().find(None) is ANYBODY
    assert ANYBODY.may_put("x")
    assert parse_users([], "f").find("x") is None


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "alice th_12",
        f"a.b th_{digest('x')}",
        f"{'a' * 25} th_{digest('x')}",
        f"{LINE} put",
        f"{LINE} put=",
        f"{LINE} names=x",
        f"{LINE} put=a%zz",
        f"{LINE} everything",
    ],
)
def test_a_line_that_is_none_refuses_the_file(line: str) -> None:
    with pytest.raises(ConfigurationError, match="f, line 1: "):
        parse_users([line], "f")


def test_a_token_stands_once() -> None:
    with pytest.raises(ConfigurationError, match="line 2: this token stands in the file already"):
        parse_users([LINE, LINE], "f")

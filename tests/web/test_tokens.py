from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pubsub.errors import ConfigurationError
from pubsub.web import tokens as module
from pubsub.web.tokens import (
    ANYBODY,
    OWNERS,
    Users,
    bearer,
    digest,
    new_token,
    owners,
    parse_users,
    read_token,
    read_users,
)

TOKEN = new_token()
ALICE, BOB = "a" * 32, "b" * 16 + "=="
LINE = f"alice th_{digest(TOKEN)}"


def test_a_token_belongs_to_its_user_with_the_rights_of_the_line() -> None:
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


@pytest.mark.parametrize(
    ("rights", "pattern", "expected"),
    [
        ("orders.*", "orders.>", True),
        ("orders.*", "orders.*", True),
        ("orders.*", "orders.eu.*", True),
        ("*", ">", True),
        ("*.eu", "orders.*", False),
        ("*.eu", "*.eu", True),
        ("orders.eu", "orders.*", False),
        ("orders.*", "*.eu", False),
        ("orders.eu.*", "orders.>", False),
        ("orders.>", "orders.>", False),
        ("orders.%2A", "orders.*", False),
    ],
)
def test_a_pattern_needs_a_right_to_all_of_its_topics(rights: str, pattern: str, expected: bool) -> None:
    user = parse_users([f"{LINE} get={rights}"], "f").find(TOKEN)
    assert user is not None
    assert user.may_get(pattern) is expected


def test_a_user_with_the_right_to_operate_may_see_the_status() -> None:
    user = parse_users([f"{LINE} operate"], "f").find(TOKEN)
    assert user is not None
    assert user.status
    assert user.operate


def test_an_unknown_token_belongs_to_nobody() -> None:
    users = parse_users([LINE], "f")
    assert users.find(None) is None
    assert users.find("") is None
    assert users.find(TOKEN + "x") is None


def test_everybody_may_do_everything_without_a_file() -> None:
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
def test_an_invalid_line_refuses_the_file(line: str) -> None:
    with pytest.raises(ConfigurationError, match="f, line 1: "):
        parse_users([line], "f")


def test_a_token_occurs_once() -> None:
    with pytest.raises(ConfigurationError, match="line 2: another line has the same token"):
        parse_users([LINE, LINE], "f")


def test_the_token_of_a_header_is_found() -> None:
    assert bearer(f"Bearer {ALICE}") == bearer(f"bearer  {ALICE} ") == ALICE
    for header in ("", "Bearer", "Bearer ", f"Basic {ALICE}", ALICE):
        assert bearer(header) is None


def name_of(users: Users, token: str) -> str | None:
    user = users.find(token)
    return None if user is None else user.name


def test_the_user_of_a_token_is_known() -> None:
    users = owners({"alice": ALICE, "b.o-b": BOB})
    assert (name_of(users, ALICE), name_of(users, BOB)) == ("alice", "b.o-b")
    for token in (f"{ALICE}x", "ä", ""):
        assert users.find(token) is None


@pytest.mark.parametrize(
    "tokens", [{"a b": ALICE}, {"": ALICE}, {"a": "short"}, {"a": "ä" * 20}, {"a": ALICE, "b": ALICE}]
)
def test_an_invalid_token_or_name_is_refused(tokens: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        owners(tokens)
    assert ALICE not in str(caught.value)


def test_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "TOKENS_MAX", 1)
    owners({"a": ALICE})
    with pytest.raises(ConfigurationError, match="TOKENS_MAX"):
        owners({"a": ALICE, "b": BOB})
    monkeypatch.setattr(module, "FILE_BYTES_MAX", 10)
    with pytest.raises(ConfigurationError, match="FILE_BYTES_MAX"):
        read_users(written(tmp_path, f"{LINE}\n"))


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_lines_of_both_forms_are_read_where_plain_ones_are_taken_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = written(tmp_path, f"# who may ask\n{LINE} put=*  # since May\nb.ob th_{digest(BOB)}\n")
    users = read_users(new, OWNERS, plain=True)
    assert (name_of(users, TOKEN), name_of(users, BOB)) == ("alice", "b.ob")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        users = read_users(
            written(tmp_path, f"alice {ALICE}  # since May\n\n{LINE}\nbob {BOB}", 0o664), OWNERS, plain=True
        )
    assert (name_of(users, ALICE), name_of(users, TOKEN), name_of(users, BOB)) == ("alice", "alice", "bob")
    (record,) = caplog.records
    assert "for one more release" in record.getMessage()
    assert ALICE not in record.getMessage()


@pytest.mark.parametrize("text", ["alice\n", f"alice {ALICE} x\n", f"alice {ALICE}\nbob {ALICE}\n", "alice short\n"])
def test_a_line_of_neither_form_refuses_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="tokens, line ") as caught:
        read_users(written(tmp_path, text), OWNERS, plain=True)
    assert ALICE not in str(caught.value)


def test_a_plain_line_is_accepted_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="line 1: after the name write th_"):
        read_users(written(tmp_path, f"alice {ALICE}\n"))


def test_a_senders_file_holds_one_token(tmp_path: Path) -> None:
    assert read_token(written(tmp_path, f"{ALICE}\n")) == ALICE
    for text in ("", "short", f"{ALICE} {BOB}"):
        with pytest.raises(ConfigurationError, match="one token"):
            read_token(written(tmp_path, text))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_token(tmp_path / "none")

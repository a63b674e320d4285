"""Bearer tokens, and the files that they are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.errors import ConfigurationError
from pubsub.http.tokens import Tokens, read_token, read_tokens

ALICE, BOB = "a" * 32, "b" * 16 + "=="


def test_a_token_is_known_as_whose_it_is() -> None:
    tokens = Tokens({"alice": ALICE, "bob": BOB})
    assert tokens.owner(f"Bearer {ALICE}") == "alice"
    assert tokens.owner(f"bearer  {BOB}") == "bob"
    for header in ("", "Bearer", f"Basic {ALICE}", f"Bearer {ALICE}x", ALICE, "Bearer ä"):
        assert tokens.owner(header) is None


@pytest.mark.parametrize(
    "tokens", [{"a b": ALICE}, {"": ALICE}, {"a": "short"}, {"a": "ä" * 20}, {"a": ALICE, "b": ALICE}]
)
def test_what_is_no_token_and_nobody_is_refused(tokens: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Tokens(tokens)
    assert ALICE not in str(caught.value)


def test_tokens_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# who may ask\nalice {ALICE}  # since May\n\nbob {BOB}\n")
    assert read_tokens(file).owner(f"Bearer {BOB}") == "bob"


@pytest.mark.parametrize("text", ["", "alice\n", f"alice {ALICE} x\n", f"a {ALICE}\na {BOB}\n"])
def test_a_file_that_is_none_of_tokens_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(ConfigurationError, match="NAME TOKEN"):
        read_tokens(tmp_path / "tokens")


def test_a_senders_file_holds_one_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{ALICE}\n")
    assert read_token(file) == ALICE
    for text in ("", "short", f"{ALICE} {BOB}"):
        file.write_text(text)
        with pytest.raises(ConfigurationError, match="one token"):
            read_token(file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_token(tmp_path / "none")

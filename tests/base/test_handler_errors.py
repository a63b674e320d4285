"""An error of a handler on one line: the error, and the handler's own last frame."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pubsub.base.handler_errors import TEXT_LENGTH_MAX, located, own_frame
from pubsub.base.text import without_mark


def raised(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except Exception as error:  # noqa: BLE001 - it is the result.
        return error
    raise AssertionError("it raised nothing")


def line_of(function: Callable[[], object]) -> str:
    """The first line in the function's body."""
    return f"{__file__}:{function.__code__.co_firstlineno + 1}"


def of_a_library() -> object:
    return json.loads("{")


def of_this_package() -> object:
    return without_mark(b"\xff\xfe")


def of_itself() -> object:
    raise ValueError("no\n stock")


@pytest.mark.parametrize("function", [of_a_library, of_this_package, of_itself])
def test_the_place_is_the_last_line_of_the_application(function: Callable[[], object]) -> None:
    assert own_frame(raised(function)) == line_of(function)


def test_a_handler_that_is_itself_in_a_library_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.base.handler_errors._LIBRARIES", (__file__,))
    assert own_frame(raised(of_itself)) == line_of(of_itself)


def test_an_error_without_frames_has_no_place() -> None:
    assert located(ValueError("no")) == "ValueError('no')"


def test_the_line_is_one_and_bounded() -> None:
    class Told(Exception):
        def __repr__(self) -> str:
            return "first\nsecond " + "x" * TEXT_LENGTH_MAX

    assert located(Told()).startswith("first second xxx")
    assert len(located(Told())) == TEXT_LENGTH_MAX
    assert located(raised(of_itself), "no\n stock") == f"no stock at {line_of(of_itself)}"

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer

from pubsub.console.parameters import prepared


def call(*arguments: str) -> dict[str, object]:
    seen: dict[str, object] = {}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    def command(
        name: str,
        path: Path,
        words: Annotated[list[str] | None, typer.Option("--word")] = None,
        count: Annotated[int, typer.Option(min=1)] = 1,
        wait: float = 0.5,
        text: str | None = None,
        loud: bool = False,
    ) -> None:
        seen.update(name=name, path=path, words=words, count=count, wait=wait, text=text, loud=loud)

    prepared(app).main(args=list(arguments), standalone_mode=False)
    return seen


def test_text_and_paths_arrive_as_given_and_others_get_their_defaults() -> None:
    assert call("a b", "/x/../y") == {
        "name": "a b",
        "path": Path("/x/../y"),
        "words": None,
        "count": 1,
        "wait": 0.5,
        "text": None,
        "loud": False,
    }


def test_lists_numbers_and_switches_arrive_with_their_types() -> None:
    seen = call("a", "-", "--word", "1", "--word", "two", "--count", "3", "--wait", "2", "--text", "5", "--loud")
    assert seen["words"] == ["1", "two"]
    assert (seen["count"], seen["wait"], seen["text"], seen["loud"]) == (3, 2.0, "5", True)
    assert isinstance(seen["wait"], float)


@pytest.mark.parametrize("arguments", [["--count", "0"], ["--count", "x"], ["--wait", "x"]])
def test_numbers_are_checked(arguments: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        call("a", "b", *arguments)


@pytest.mark.parametrize(
    ("option", "text", "number"),
    [
        ("count", "007", 7),
        ("count", " 3 ", 3),
        ("count", "1_000", 1000),
        ("wait", "1e3", 1000.0),
        ("wait", "-0.5", -0.5),
    ],
)
def test_other_forms_of_numbers_are_read_too(option: str, text: str, number: float) -> None:
    assert call("a", "b", f"--{option}={text}")[option] == number


def test_a_missing_required_parameter_is_an_error() -> None:
    with pytest.raises(typer.TyperException, match="path"):
        call("a")

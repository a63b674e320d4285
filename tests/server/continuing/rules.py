"""The rules of continuing (docs/explanation/continuing.md), by name: each can be left out of the model."""

from __future__ import annotations

from typing import Final

RULES: Final = {
    "continue": "SUBSCRIBE without `fresh` keeps the spans of a subscription that is on",
    "whole_here": "it is continued only while the topic is whole, though this server has the subscription",
    "whole_made": "where this server has none, or one that is off, it is made only while the topic is whole",
    "fence": "continuing raises the number, so that the earlier directory is superseded",
    "mark": "continuing marks as doubtful all that was handed out and is not acknowledged",
    "again": "continuing what was continued marks anew, up to what was handed out by then",
    "loaded": "a server that starts takes all that is there as handed out",
    "came": "so it does with a subscription that came with a merge or a move",
    "joined": "and with one of its own to which a merge brought something",
    "stored": "the mark is stored with the spans",
    "after_off": "a directory that unsubscribed sends `fresh` when it subscribes again, answered or not",
    "retake": "a superseded directory that subscribes again continues too",
}


def all_but(*names: str) -> dict[str, bool]:
    """Which rules hold."""
    return {name: name not in names for name in RULES}

"""Rules that need runs of their own: nothing is found in these as the code is, and a breakage is caught."""

from __future__ import annotations

import pytest

from tests.simulation.breakages.table import BREAKAGES
from tests.simulation.focus import FOCUSED
from tests.simulation.mixtures import MIXTURES
from tests.simulation.sample import require_caught, run_once, sampled

SEEDS = (range(1), pytest.param(range(1, 6), marks=pytest.mark.nightly))
"""Each time, and by night."""

GROUPED = {title for title in FOCUSED if title.startswith(("groups: ", "databases: "))}
"""Those of consumer groups and of databases have tests of their own (`test_grouping`, `test_databases`)."""

ALONE = {title: made for title, made in FOCUSED.items() if title not in GROUPED}
FAMILIES = {made.__name__: made for made in ALONE.values() if made.__name__ not in MIXTURES}
TRIES_MAX = 120

SHOWN = {
    "a move forgets what was handed out": 29,
    "a start forgets what was handed out": 10,
    "answered before a proxy has heard of the topic": 8,
    "answered before a second proxy has heard of the topic": 25,
    "continued though the topic may be split": 12,
    "families: all: one proxy's confirmation is enough": 1,
    "families: apart: a server's entry has the key and the number of the client's subscription": 1,
    "families: ask: an answer of a proxy with other patterns lets go": 0,
    "families: enter: no entries are made": 0,
    "families: keep: what a subscriber to a pattern has at the giver stays behind in a merge": 1,
    "families: list: the client asks for matching topics once": 0,
    "families: off: servers keep their entries for ended patterns": 5,
    "families: since: a client joins a topic at its end": 0,
    "compaction: a start forgets the parts": 1,
    "compaction: held: what a subscriber needs goes": 4,
    "compaction: patterns: a subscriber to a pattern is not entered": 13,
    "compaction: sole_owner: acts though another server may hold the topic": 10,
    "compaction: the parts do not travel": 29,
    "compaction: ttl: a message goes before its time to live has ended": 21,
    "compaction: visible: a record that the history does not show supersedes others": 69,
    "delay: always": 10,
    "delay: before it is due": 6,
    "delay: both": 10,
    "delay: commit": 0,
    "delay: delivered": 3,
    "delay: last": 0,
    "delay: publisher": 4,
    "delay: sole_owner": 3,
    "delay: travels": 3,
    "mark left out of a commit to a standby": 12,
    "mark left out of a transfer": 3,
    "mark lost in the prefetch": 0,
    "mark not stored": 12,
    "marked the first time only": 12,
    "mixtures: a dead letter is put in a commit of its own": 1,
    "mixtures: a put of a client costs nothing": 0,
    "mixtures: a reader is not told of deletions that went": 2,
    "one answer of both kinds": 1,
    "deletions: drop: a server keeps the topic": 0,
    "deletions: kept: a server forgets deletions at its end": 0,
    "deletions: named: a new publisher needs no log": 26,
    "deletions: told: a server that returns is told nothing, and gets requests": 0,
    "expiry: all that waits is too old": 3,
    "limits: a put costs nothing": 1,
    "limits: a throttled chain waits for another answer": 1,
    "limits: an expired message takes the next one along": 1,
    "limits: messages expire early": 0,
    "limits: no message expires": 0,
    "limits: no put waits": 1,
    "purges: a new reader gets purged messages": 0,
    "purges: a purge lets go of all that is kept": 3,
    "purges: a repeat purges what came since": 0,
    "purges: a subscriber is not told": 5,
    "purges: every purge takes unread messages": 6,
    "purges: purged though another server may hold the topic": 1,
    "purges: purges are not stored": 3,
    "purges: purges do not travel": 36,
    "retaining: a server's defaults are those of its first announcement": 1,
    "retaining: ages are trusted with a wrong clock": 5,
    "retaining: other defaults are not looked at": 14,
    "replay: a history has one token for ever": 4,
    "replay: a position that is not held is the end": 26,
    "replay: a seek keeps fetched messages": 5,
    "replay: a seek keeps the last counters": 0,
    "replay: a start by time is one position": 12,
    "replay: any holder says that a position is gone": 26,
    "replay: nothing begins beside a position": 41,
    "replay: since is the time of the seek": 27,
    "replay: since of a position is its stamp": 41,
    "replay: the last N are offsets": 11,
    "settings: a change leaves earlier findings in force": 43,
    "settings: a change replaces any settings": 6,
    "settings: a new reader begins at batches without bytes": 81,
    "settings: any value of a conflict lets go": 13,
    "settings: drop takes what keep keeps": 3,
    "settings: dropped though another server may hold the topic": 2,
    "settings: keep is not looked at": 1,
    "settings: records that are hidden count": 31,
    "settings: settings do not travel": 0,
    "settings: the newer settings win a merge": 13,
    "settings: the receiver's settings win a merge": 0,
    "stale announcement accepted": 7,
    "to whom a topic was given is not said": 1,
    "what was handed out is not marked": 1,
    "which topics too few proxies have heard of is forgotten": 49,
    "who has left continues": 2,
    "who is superseded begins at the end": 1,
    "whole always true for a named subscription": 8,
}
"""A seed that showed a breakage. It is tried first; the others of TRIES_MAX follow as ever, so that the verdict is the
same. A change of the product makes another history of each seed: then another one may be named here."""

EACH_TIME = (
    "compaction: a start forgets the parts",
    "announced after the answer",
    "answered before a proxy has heard of the topic",
    "continued though the topic may be split",
    "families: enter: no entries are made",
    "delay: always",
    "delay: sole_owner",
    "deletions: drop: a server keeps the topic",
    "mark left out of a transfer",
    "expiry: all that waits is too old",
    "limits: messages expire early",
    "purges: a new reader gets purged messages",
    "retaining: ages are trusted with a wrong clock",
    "replay: a seek keeps the last counters",
    "settings: keep is not looked at",
    "stale announcement accepted",
    "to whom a topic was given is not said",
    "whole always true for a named subscription",
)
"""The runs of these are the shortest."""


@pytest.mark.parametrize("seeds", SEEDS, ids=("day", "night"))
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_found_in_runs_made_for_a_rule(family: str, seeds: range) -> None:
    for seed in seeds:
        assert run_once(FAMILIES[family], seed).violations == []


def test_each_breakage_that_needs_such_runs_is_known() -> None:
    assert FOCUSED.keys() <= BREAKAGES.keys()


def test_the_seeds_tried_first_are_within_the_range_of_all_tries() -> None:
    assert ALONE.keys() >= SHOWN.keys()
    assert set(SHOWN.values()) <= set(range(TRIES_MAX))


@pytest.mark.slow
@pytest.mark.parametrize("title", sampled(ALONE, EACH_TIME))
def test_a_breakage_is_caught(title: str) -> None:
    seeds = sorted(range(TRIES_MAX), key=lambda seed: seed != SHOWN.get(title))
    require_caught(title, FOCUSED[title], seeds, compared=False)


@pytest.mark.nightly
@pytest.mark.parametrize("title", SHOWN)
def test_a_seed_that_shows_a_breakage_finds_nothing_without_it(title: str) -> None:
    assert run_once(FOCUSED[title], SHOWN[title]).violations == []

"""Values that the property tests draw for messages and bodies of consumer groups."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol.group_bodies import Dead, Later, Range, Say, Tried
from pubsub.protocol.groups import Describe, Group, Work
from tests.protocol.drawn import PRINTABLE, bodies, flags, hexes, history, ids, maybe, names, numbers, topics, words

bounds_of_ranges = st.lists(st.integers(1, NUMBER_MAX), min_size=2, max_size=2, unique=True).map(sorted)
one_range = st.builds(
    lambda log, bounds, part: Range(log, *bounds, part), hexes, bounds_of_ranges, st.none() | st.integers(0, 4095)
)
offsets, attempts = st.integers(1, NUMBER_MAX), st.integers(0, 1000)
reasons = st.text(PRINTABLE, min_size=1, max_size=300)
errors = st.text(PRINTABLE, max_size=200)
group_ranges = st.lists(one_range, max_size=4).map(tuple)
says = st.builds(
    Say,
    **dict.fromkeys(("done", "keep", "offered", "claim"), group_ranges),
    tried=st.lists(st.builds(Tried, hexes, offsets, attempts, errors), max_size=3).map(tuple),
    later=st.lists(st.builds(Later, hexes, offsets, st.integers(0, 7_776_000_000), attempts), max_size=3).map(tuple),
    dead=st.lists(st.builds(Dead, hexes, offsets, attempts, reasons), max_size=3).map(tuple),
)


group_values = {
    "parts": st.integers(0, 4096),
    "on_lost": st.sampled_from(["", "wait", "redeliver"]),
    "lost_ms": numbers,
    "attempts": st.integers(0, 1000),
}
GROUPS: dict[type, dict[str, Any]] = {
    Work: dict(
        sender=ids,
        topic=topics,
        number=numbers,
        epoch=numbers,
        **history,
        group=ids,
        subscription=numbers,
        store=hexes,
        records_max=numbers,
        bytes_max=numbers,
        wait_ms=numbers,
        claim=flags,
        cut=flags,
        leave=flags,
        database=maybe,
        settles=words,
        say=says,
    ),
    Describe: dict(
        sender=ids,
        topic=topics,
        what=st.sampled_from(["groups", "members", "dead"]),
        name=names,
        after=words,
        items_max=numbers,
        **history,
    ),
    Group: dict(
        sender=ids,
        topic=topics,
        action=st.from_regex(r"[a-z]{1,20}", fullmatch=True),
        name=ids,
        subscription=numbers,
        member=names,
        store=maybe,
        number=numbers,
        lost_disk=flags,
        skip=flags,
        force=flags,
        mode=st.sampled_from(["", "shared", "keyed"]),
        **group_values,
        **history,
        places=bodies,
    ),
}

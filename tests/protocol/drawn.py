"""Values that the property tests of messages draw."""

from __future__ import annotations

from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX, TOPIC_LENGTH_MAX
from pubsub.protocol.register import View

PRINTABLE = "".join(map(chr, range(33, 127)))
ids = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True).filter(lambda s: s not in {".", ".."})
topics = st.text(PRINTABLE, min_size=1, max_size=TOPIC_LENGTH_MAX)
hexes, words = st.from_regex(r"[0-9a-f]{16}", fullmatch=True), st.text(PRINTABLE, max_size=40)
numbers, flags = st.integers(0, NUMBER_MAX), st.integers(0, 1)
positions = st.none() | st.tuples(hexes, numbers)
bodies = st.binary(max_size=200)
names, maybe = st.just("") | ids, st.just("") | hexes
history = {"log": maybe, "avoid": maybe}
endpoints = st.from_regex(r"tcp://[a-z0-9.]{1,40}:[0-9]{1,5}", fullmatch=True)


@st.composite
def views(draw):
    members = sorted(draw(st.lists(hexes, min_size=1, max_size=2, unique=True)))
    primary, other = draw(st.sampled_from(members)), draw(st.sampled_from(members))
    in_sync = sorted({primary, other})
    return View(draw(numbers), primary, draw(endpoints), tuple(members), tuple(in_sync))

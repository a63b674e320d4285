"""The rules of topics that can be looked back into, by name: each can be left out of its model.

The models have numbers of their own. docs/explanation/retention.md has the rules that are built, with other numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LOOKING_BACK: Final = {
    "sole_owner": "T4, T13: retention and compaction act only while the topic has a sole owner",
    "held": "T5, T13: they leave alone all that a subscriber has not acknowledged, unless `drop` is set",
    "lost": "T5, T6: a body that was dropped is reported as lost to each subscription that is owed it",
    "counted": "T6: spans with a watermark count nothing toward a `keep` of records or bytes",
    "rows": "T6: without a sole owner, the limit in bytes takes bodies only; the rows stay for a merge",
    "floor": "T6: a new reader begins at the floor, above the bare rows",
    "owed": "T6, T10: with `keep` by age, `since` is at least the time of the seek less `keep` and the skew",
    "renumber": "T7: each transmission of a seek has a number of its own",
    "forget": "T8: a seek empties the client's list of last counters",
    "prefetch": "T8: a seek discards fetched messages, and nothing is taken before its answer",
    "cuts": "T9: a start by time leaves out older records of each span, it is no single position",
    "clock": "T10: a seek's `since` is the start that was asked for, not the time of the seek",
    "avoid": "T11: a holder that does not know a position says so, and starts nothing",
    "gone": "T11: only the sole owner says that a position of an unknown log is gone",
    "position": "T11: `since` of a start at a position is the record's stamp less the skew",
    "beside": "T11: such a start begins at that time in the spans before the record's log too",
    "last": "T12: `since` of a start at the last N is the first stamp, and at most the seek's time less the skew",
    "shown": "T12: the last N are counted in shown records, not in offsets",
    "visible": "T15: compaction goes by the order of the history, among the records that the history shows",
    "again": "T16: a view begins anew where a merge has put its log after another",
    "elder": "T17: in a merge, the side that has let go of something comes first",
    "earlier": "T18: a tombstone goes only when no earlier record of its key is left",
    "tombstones": "T19: a view that stands before a tombstone that is gone begins anew",
}


def all_but(rules: Iterable[str], *names: str) -> dict[str, bool]:
    """Return which rules hold."""
    return {name: name not in names for name in rules}

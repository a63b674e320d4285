"""Counters of proxies and servers, each with its help text. A scrape contains all of them from the start, 0 included.

The names are those of the reports (`pubsub status --json`, `counters`). A counter that only a report has is exported
too, without a help text of its own. A test checks that every counter of the code is listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CONNECTIONS: Final = {
    "connections_accepted": "Connections opened to its own addresses.",
    "connections_established": "Connections that completed the ZeroMQ greeting, and with keys the handshake.",
    "connections_ended": "Connections closed.",
    "handshakes_failed": "Connections with a failed handshake.",
    "memory_limit_reached": "Times that all connections were closed because of memory_bytes_max.",
}
_KEYS: Final = {
    "handshakes_entered": "Handshakes by an authorized key.",
    "handshakes_malformed": "Malformed handshakes.",
    "handshakes_refused_key": "Handshakes by a key that is not authorized.",
    "handshakes_refused_mechanism": "Handshakes without a key.",
    "handshakes_refused_role": "Handshakes by a key of a role that the port does not accept.",
    "denied": "Requests denied because the key lacks the right.",
    "reloads": "Times that the file authorized was read again.",
    "reload_failed": "Times that the file authorized could not be used.",
    "answers_dropped_rights_changed": "Answers dropped because the rights had changed meanwhile.",
    "servers_under_a_wrong_name": "Messages of servers under an ID that does not belong to their key.",
}
_BYTES: Final = {
    "malformed": "Malformed messages, dropped.",
    "refused": "Requests rejected because of their content.",
}

PROXY: Final[Mapping[str, str]] = {
    **_CONNECTIONS,
    **_KEYS,
    **_BYTES,
    "announcements": "Announcements of servers accepted.",
    "announcements_asked": "Servers asked to announce all their topics.",
    **{
        f"announcements_{verdict}": f"Announcements of servers, {what}."
        for verdict, what in {
            "ask": "answered: announce all topics first",
            "taken": "rejected because the ID or the store belongs to another server",
            "stale": "older than an earlier announcement",
            "deposed": "sent by a member that is no longer primary",
            "late": "overtaken by a later one",
            "refused": "rejected",
        }.items()
    },
    "answers_dropped": "Answers dropped because a client's queue was full.",
    "answers_dropped_unread": "Large answers dropped because a client leaves too many unread.",
    "answers_of_clients_dropped": "Answers dropped because a client sent them.",
    "answers_of_servers": "Answers of servers to questions of the proxy.",
    "answers_of_strangers_dropped": "Messages for clients dropped because their sender is not a server.",
    **{
        f"answered_{outcome}": f"Requests that the proxy itself answered `{outcome}`."
        for outcome in ("success", "unavailable", "busy", "full", "unknown", "refused", "denied")
    },
    "busy_too_many_bytes_under_way": "Requests answered busy because too many bytes are in flight to a server.",
    "deletions_learned": "Deletions of topics that became known here.",
    "missing_topics_refused": "Requests about topics that do not exist, refused because topics_auto is false.",
    "throttled": "Puts that were put off because of the quota of their client.",
    "merges_asked": "Times that a server was asked to give a topic to another holder.",
    "puts_given_up": "Measured puts without an acknowledgement within 30 s, or at all.",
    "registers_asked_by_others": "Ballots for a register of another server.",
    "votes_withheld": "Ballots not answered because the vote cannot be stored at present.",
    **{
        f"votes_{outcome}": f"Ballots answered `{outcome}`."
        for outcome in ("promised", "accepted", "refused", "new", "full")
    },
    "votes_primary_alive": "Takeovers that got no promise because the primary is alive.",
    "votes_reported": "Requests about a register answered with its value.",
    "owners_answered": "Questions of servers whether they own a topic alone, answered.",
    "owners_unavailable": "Questions of servers whether they own a topic alone, without an answer yet.",
}
"""Counters of a proxy."""

SERVER: Final[Mapping[str, str]] = {
    **_CONNECTIONS,
    **_KEYS,
    **_BYTES,
    "acknowledgements_of_others": "Acknowledgements of a named subscription that belongs to another checkpoint.",
    "addresses_bad": "Messages for invalid addresses.",
    "answers_not_understood": "Malformed answers of proxies.",
    "backlog_limit_refused": "Puts that were refused because their topic's backlog is at backlog_bytes_max.",
    "batches_damaged": "Damaged batches found in the store.",
    "batches_dropped": "Batches that a topic's setting drop let go although a subscriber had not acknowledged them.",
    "batches_repaired": "Damaged batches replaced by the other member's copy.",
    "batches_without_bytes": "Batches with dropped bodies, for lack of space or by a topic's setting drop.",
    "contested_holders_gone": "Reported other holders of a topic that turned out not to hold it.",
    "delivered": "Messages sent to subscribers, repeats included.",
    "delivered_doubtful": "Delivered messages that an earlier state directory received and did not acknowledge.",
    "duplicate": "Puts that were stored before.",
    "gap": "Puts that arrived before their predecessor.",
    "not_sent": "Messages that a socket did not accept.",
    "not_taken": "Requests rejected because too many answers are held for the other member.",
    "offers": "Topics offered to other servers.",
    "places_gone": "Reads from an abandoned log.",
    "positions_behind": "Reads that name a position before the acknowledged one.",
    "abandonments_sent": "Times that abandoned topics were reported to a proxy.",
    "puts_gone": "Puts that name an abandoned log.",
    "reads_damaged": "Reads that met a damaged page.",
    "reads_rejected": "Range reads answered `busy`.",
    "records": "Messages put.",
    "records_read_by_range": "Messages sent by range reads.",
    "restaged": "Batches of sinks that must be written again.",
    "rows_staged": "Rows staged by sinks.",
    "servers_forgotten": "Links to other servers closed to make room for another.",
    "sockets_not_opened": "Sockets that could not be opened and were tried again.",
    "delayed_held_up": "Times that due messages waited because the server was not known to be the sole owner.",
    "pattern_entries_ended": "Entries of patterns that ended in a topic.",
    "pattern_entries_made": "Entries made in a topic for the subscribers of patterns.",
    "patterns_unreadable": "Stored patterns that could not be read; the proxies tell them again.",
    "records_delayed": "Messages put with a delay.",
    "records_due": "Delayed messages that were appended to their topic.",
    "topics_deleted": "Topics dropped after an operator deleted them.",
    "topics_purged": "Purges of topics.",
    "expired": "Messages left out of a delivery because they are older than the setting expire.",
    "held_by_other_defaults": "Looks at topics with messages that a default lets go, while servers have others.",
    "compactions": "Passes of compaction.",
    "compaction_rounds": "Rounds of these passes.",
    "records_compacted": "Superseded messages removed by compaction, and deletions of keys.",
    "tombstones_removed": "Deletions of keys removed by compaction.",
    "settings_changed": "Changes of topics' settings.",
    "stamps_too_far_ahead": "Clocks of other processes too far ahead to follow.",
    "stores_not_remembered": "Other stores that were not remembered because of the limit.",
    "subscriptions_continued": "Subscriptions that a client continued from another state directory.",
    "groups_made": "Consumer groups that were made.",
    "groups_ended": "Consumer groups that were ended.",
    "groups_resumed": "Consumer groups that an operator resumed after a restore.",
    "group_records_released": "Messages of groups that an operator released from a member.",
    "group_records_settled": "Messages of groups that a member with the same database looked up, and that went back.",
    "group_records_given_up": "Messages of groups that their policy gave up at a silent member.",
    "group_ranges_done_after_end": "Ranges that members told as done after their group had ended.",
    "subscriptions_made": "Subscriptions that began at the end.",
    "subscriptions_ended": "Subscriptions ended by an operator.",
    "throttled": "Puts that were put off because of the quota of their topic.",
    "topics_given": "Topics given to other servers.",
    "topics_held_back": "Topics held back because they are damaged or from an older copy.",
    "topics_merged": "Topics merged with another server's part.",
    "topics_quarantined": "Topics quarantined because they came back after an operator had abandoned them.",
    "topics_taken_back": "Topics taken back from a receiver that was given up.",
    "trains": "Messages that carried several puts.",
    "trains_ended_early": "Messages with several puts in which one put, and therefore all after it, was not stored.",
}
"""Counters of a server."""

RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "proxy": {
        "owners_answered": "whole_answered",
        "owners_unavailable": "whole_unavailable",
        "votes_primary_alive": "votes_heard",
        "votes_reported": "votes_told",
    },
    "pipeline": {},
    "relay": {},
    "server": {
        "abandonments_sent": "proxies_told_of_abandoned",
        "reads_rejected": "reads_turned_away",
        "topics_quarantined": "topics_set_aside",
    },
}
"""By role: new name and old name of a counter; for one release the metrics have both."""

RELAY: Final[Mapping[str, str]] = {
    "rows_taken": "Outgoing rows moved to the outbox.",
    "messages_sent": "Messages that servers have stored.",
    "rows_refused": "Outgoing rows that cannot be messages, moved to pubsub.refused.",
    "takeovers": "Times that it took over from another relay.",
}

PIPELINE: Final[Mapping[str, str]] = {
    "messages": "Messages of completed batches.",
    "batches": "Completed batches with messages.",
    "unparsed": "Messages without the fields of parse.fields.",
    "untimed": "Rows without a time, left out of the windows.",
    "late": "Rows left out because their window had ended.",
    "restarts": "Times that the queries were started again after an error.",
}
COUNTERS: Final[Mapping[str, Mapping[str, str]]] = {
    "pipeline": PIPELINE, "proxy": PROXY, "relay": RELAY, "server": SERVER,
}  # fmt: skip
"""By role: name as in the report -> help text."""

"""What proxies and servers count, each with a sentence: a scraper is told all of it from the start, 0 included.

The names are those of the reports (`pubsub status --json`, `counters`). What a report counts beyond them is told too,
without a sentence of its own; a test sees that none that the code names is missing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CONNECTIONS: Final = {
    "connections_accepted": "Connections that were opened to its own addresses.",
    "connections_established": "Connections that said that they are ZeroMQ, and with keys have shown one.",
    "connections_ended": "Connections that were closed.",
    "handshakes_failed": "Connections of which the handshake failed.",
    "memory_limit_reached": "Times that all connections were closed for memory_bytes_max.",
}
_KEYS: Final = {
    "handshakes_entered": "Handshakes by an authorized key.",
    "handshakes_malformed": "Handshakes that could not be read.",
    "handshakes_refused_key": "Handshakes by a key that is not authorized.",
    "handshakes_refused_mechanism": "Handshakes without a key.",
    "handshakes_refused_role": "Handshakes by a key of another role than the door is for.",
    "denied": "Requests for which there is no right.",
    "reloads": "Times that the file of who is authorized was read again.",
    "reload_failed": "Times that the file of who is authorized could not be used.",
    "answers_dropped_rights_changed": "Answers dropped because the rights had changed meanwhile.",
    "servers_under_a_wrong_name": "Messages of servers under an ID that their key does not have.",
}
_BYTES: Final = {
    "malformed": "Messages that could not be read, and were dropped.",
    "refused": "Requests that were refused for their bytes.",
}

PROXY: Final[Mapping[str, str]] = {
    **_CONNECTIONS,
    **_KEYS,
    **_BYTES,
    "announcements": "Announcements of servers that were taken over.",
    "announcements_asked": "Servers that were asked to say all that they hold.",
    **{
        f"announcements_{verdict}": f"Announcements of servers that were {what}."
        for verdict, what in {
            "ask": "answered: say all first",
            "taken": "refused because the ID or the store is another's",
            "stale": "older than what was heard before",
            "deposed": "of a member that is primary no more",
            "late": "overtaken by a later one",
            "refused": "refused",
        }.items()
    },
    "answers_dropped": "Answers that a client's queue did not take.",
    "answers_dropped_unread": "Large answers dropped because a client leaves too many unread.",
    "answers_of_clients_dropped": "Answers that came from clients.",
    "answers_of_servers": "Answers of servers to questions of the proxy.",
    "answers_of_strangers_dropped": "Messages for clients from links that are no server's.",
    **{
        f"answered_{outcome}": f"Requests that the proxy itself answered `{outcome}`."
        for outcome in ("success", "unavailable", "busy", "full", "unknown", "refused", "denied")
    },
    "busy_too_many_bytes_under_way": "Requests turned away because too many bytes are on their way to a server.",
    "merges_asked": "Times that a server was asked to give a topic to another holder.",
    "puts_given_up": "Puts of which it was to be measured how long they take, and that were not answered as taken.",
    "registers_asked_by_others": "Ballots for a register that is another server's.",
    "votes_withheld": "Ballots not answered because nothing can be remembered at present.",
    **{
        f"votes_{outcome}": f"Ballots answered `{outcome}`."
        for outcome in ("promised", "accepted", "refused", "heard", "told", "new", "full")
    },
    "whole_answered": "Questions of servers whether a topic is whole, answered.",
    "whole_unavailable": "Questions of servers whether a topic is whole, to which there is no answer yet.",
}
"""Of a proxy."""

SERVER: Final[Mapping[str, str]] = {
    **_CONNECTIONS,
    **_KEYS,
    **_BYTES,
    "acknowledgements_of_others": "Acknowledgements of a named subscription that belongs to another checkpoint.",
    "addresses_bad": "Messages for addresses that are none.",
    "answers_not_understood": "Answers of proxies that could not be read.",
    "batches_damaged": "Stored batches that were found not to be what was put.",
    "batches_repaired": "Damaged batches that came from the other member.",
    "batches_without_bytes": "Batches that all subscribers had, whose bytes were dropped for want of room.",
    "contested_holders_gone": "Other holders of a topic that were found to be none.",
    "delivered": "Messages handed to subscribers, repeats included.",
    "delivered_doubtful": "Those of them that a state directory was given before, and did not acknowledge.",
    "duplicate": "Puts that were taken before.",
    "gap": "Puts that came before the one that they name as theirs before.",
    "not_sent": "Messages that a socket did not take.",
    "not_taken": "Requests not taken because too much is held for the other member.",
    "offers": "Topics offered to other servers.",
    "places_gone": "Reads from a log that was given up.",
    "positions_behind": "Reads that name a position older than the one that was acknowledged.",
    "proxies_told_of_abandoned": "Times that a proxy was told what was given up.",
    "puts_gone": "Puts that name a log that was given up.",
    "reads_damaged": "Reads that came upon a damaged page.",
    "reads_turned_away": "Range reads answered `busy`.",
    "records": "Messages put.",
    "records_read_by_range": "Messages handed out by range reads.",
    "restaged": "Batches of sinks that were to be written again.",
    "rows_staged": "Rows staged by sinks.",
    "servers_forgotten": "Links to other servers that were closed for a further one.",
    "sockets_not_opened": "Sockets that could not be opened, and were tried again.",
    "stamps_too_far_ahead": "Clocks of others that are too far ahead to be followed.",
    "stores_not_remembered": "Other stores for which there was no room.",
    "subscriptions_continued": "Subscriptions that a client went on with from another state directory.",
    "subscriptions_made": "Subscriptions that began at the end.",
    "subscriptions_ended": "Subscriptions that an operator ended.",
    "topics_given": "Topics given to other servers.",
    "topics_held_back": "Topics held back for damage, or as an older copy's.",
    "topics_merged": "Topics merged with what another server held.",
    "topics_set_aside": "Topics set aside because they had been given up.",
    "topics_taken_back": "Topics taken back from a receiver that was given up.",
    "trains": "Messages that brought several puts at once.",
    "trains_ended_early": "Those of them of which a put was not taken, and so none behind it.",
}
"""Of a server."""

COUNTERS: Final[Mapping[str, Mapping[str, str]]] = {"proxy": PROXY, "server": SERVER}
"""By role: name, as in the report, and what it counts."""

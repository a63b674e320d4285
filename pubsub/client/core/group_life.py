"""The life of a member's process, as a table (docs/explanation/group-promises.md, *States of a member and of a part*).

    state     called    answered  leaves    ends    joined
    NEW       NEW       WORKING   LEAVING   ENDED   NEW      its first message keeps nothing, and tells all that is done
    WORKING   WORKING   WORKING   LEAVING   ENDED   NEW
    LEAVING   LEAVING   LEFT      LEAVING   ENDED   NEW      it gives all back, and tells all that is done
    LEFT      NEW       LEFT      LEFT      ENDED   LEFT     it holds nothing, and the service knows that
    ENDED     ENDED     ENDED     ENDED     ENDED   NEW      the group was ended, or this process may not go on

called: the application takes from the group. answered: to the last message, in LEAVING only to the one that leaves.
leaves: the application leaves. ends: the answer says so. joined: a SUBSCRIBE was answered with another number.
"""

from __future__ import annotations

from typing import Final

NEW: Final = "new"
WORKING: Final = "working"
LEAVING: Final = "leaving"
LEFT: Final = "left"
ENDED: Final = "ended"

CALLED: Final = "called"
ANSWERED: Final = "answered"
LEAVES: Final = "leaves"
ENDS: Final = "ends"
JOINED: Final = "joined"

LIFE: Final[dict[tuple[str, str], str]] = {
    (NEW, CALLED): NEW,
    (NEW, ANSWERED): WORKING,
    (NEW, LEAVES): LEAVING,
    (NEW, ENDS): ENDED,
    (NEW, JOINED): NEW,
    (WORKING, CALLED): WORKING,
    (WORKING, ANSWERED): WORKING,
    (WORKING, LEAVES): LEAVING,
    (WORKING, ENDS): ENDED,
    (WORKING, JOINED): NEW,
    (LEAVING, CALLED): LEAVING,
    (LEAVING, ANSWERED): LEFT,
    (LEAVING, LEAVES): LEAVING,
    (LEAVING, ENDS): ENDED,
    (LEAVING, JOINED): NEW,
    (LEFT, CALLED): NEW,
    (LEFT, ANSWERED): LEFT,
    (LEFT, LEAVES): LEFT,
    (LEFT, ENDS): ENDED,
    (LEFT, JOINED): LEFT,
    (ENDED, CALLED): ENDED,
    (ENDED, ANSWERED): ENDED,
    (ENDED, LEAVES): ENDED,
    (ENDED, ENDS): ENDED,
    (ENDED, JOINED): NEW,
}

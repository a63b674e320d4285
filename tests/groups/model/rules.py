"""The rules of consumer groups, by the names under which each can be left out of the model.

The rules are those of docs/explanation/groups.md, GR1, GR2, GR3, GR4, GR5, GR6, GR7, GR8, GR9, GR10, GR11, GR12, GR13,
GR14, GR15, GR16, GR17, GR18, GR19, GR20, GR21, GR22, GR23, GR24, GR25, GR26, GR27, GR28, GR29, GR30, GR31, GR32 and GR33.
A rule of the page is several here if its parts fail on their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Rules = Mapping[str, bool]

CORE: Final = {
    "claim": "GR1: a member commits an effect only for a message that the server has claimed for it",
    "durable": "GR2: a claim is answered after its commit, on the standby too",
    "deposed": "GR2: the answers of a deposed primary never leave it",
    "once": "GR3: only a waiting message is claimed, and none that another member holds",
    "number": "GR4: a WORK with a number below the member's highest changes nothing but what is done",
    "last": "GR5: a member acts only on the answer to its last WORK",
    "stop": "GR6: a member has stopped with all that it does not name as kept",
    "kept": "GR6: a commit that is not on the disk yet is named as kept",
    "store": "GR7: a member is a client together with its store",
    "settle": "GR8: a new process tells what its directory has as done",
    "fsync": "GR9: only an effect that an fsync covers is told as done",
    "repeat": "GR9: what is done is told in each WORK until one of them is answered",
    "doubt": "GR10: the claims of a silent member are given to nobody",
    "told": "GR11: a released message is delivered with the mark `doubtful`",
    "home": "GR12: a group is made while the topic has a sole owner, and another holder does not know it",
    "avoid": "GR12: a member that was answered `unknown` avoids that log, and so reaches the holder of the group",
    "travel": "GR13: claims travel with the topic",
    "numbers": "GR13: the numbers of members travel with the topic",
    "watermark": "GR14: a merge leaves out of the other log the messages that the group's own log had",
    "nofilter": "GR15: a member drops nothing by the counter of a publisher",
    "part": "GR16: the messages of a part are claimed by one member at a time",
    "front": "GR16: the messages of a part are claimed from its front on",
    "rest": "GR16: a member that gives back a message gives back the later ones of its part",
    "suspect": "GR17: an attempt that ended its process counts although nothing was claimed",
    "facts": "GR19: a finished message counts from any WORK, whoever holds it now",
    "lost": "GR18: the offers of a silent member end",
    "blocked": "GR18: the offers of a part end when another member claims in it",
    "begun": "GR23: a new process tells which messages it had begun, together with what goes back",
    "cut": "GR23: after a power cut all claims are reported as begun",
}
"""The rules of the design."""

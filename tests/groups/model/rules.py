"""The rules of consumer groups, by the names under which each can be left out of the model.

The rules are those of docs/explanation/groups.md, GR1, GR2, GR3, GR4, GR5, GR6, GR7, GR8, GR9, GR10, GR11, GR12, GR13,
GR14, GR15, GR16, GR17, GR18, GR19, GR20, GR21, GR22, GR23, GR24, GR25, GR26, GR27, GR28, GR29, GR30, GR31, GR32 and
GR33. The model leaves out GR22, since it knows no time. A rule of the page is several here if its parts fail on their
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Rules = Mapping[str, bool]

RULES: Final = {
    "claim": "GR1: a member commits an effect only for a message that the server has claimed for it",
    "durable": "GR2: a claim is answered after its commit, on the standby too",
    "deposed": "GR2: the answers of a deposed primary never leave it",
    "once": "GR3: only a waiting message is claimed, and none that another member holds",
    "number": "GR4: a WORK with a number below the member's highest changes nothing but what is done",
    "last": "GR5: a member acts only on the answer to its last WORK",
    "process": "GR5: a new process takes a fresh number first, and acts on no answer to an earlier process",
    "stop": "GR6: a member has stopped with all that it does not name as kept",
    "kept": "GR6: a commit that is not on the disk yet is named as kept",
    "store": "GR7: a member is a client together with its store",
    "settle": "GR8: a new process tells what its directory has as done",
    "fsync": "GR9: only an effect that an fsync covers is told as done",
    "repeat": "GR9: what is done is told in each WORK until one of them is answered",
    "doubt": "GR10: the claims of a silent member are given to nobody",
    "told": "GR11: a released message is delivered with the mark `doubtful`",
    "home": "GR12: a group is made while the topic has a sole owner",
    "avoid": "GR12: a member that was answered `unknown` avoids that log, and so reaches the holder of the group",
    "travel": "GR13: claims travel with the topic",
    "numbers": "GR13: the numbers of members travel with the topic",
    "retries": "GR13: delayed messages travel with the topic",
    "watermark": "GR14: a merge leaves out of the other log the messages that the group's own log had",
    "nofilter": "GR15: a member drops nothing by the counter of a publisher",
    "part": "GR16: the messages of a part are claimed by one member at a time",
    "front": "GR16: the messages of a part are claimed from its front on",
    "rest": "GR16: a member that gives back a message gives back the later ones of its part",
    "suspect": "GR17: an attempt that ended its process counts although nothing was claimed",
    "lost": "GR18: the offers of a silent member end",
    "blocked": "GR18: the offers of a part end when another member claims in it",
    "facts": "GR19: a finished message counts from any WORK, whoever holds it now",
    "held": "GR20: retention keeps all that waits, is claimed or is delayed",
    "copied": "GR20: dead letters have copies of their own",
    "letters": "GR20: dead letters do not hold the log",
    "aged": "GR20: messages that are in doubt for long are copied, and then do not hold the log",
    "suspended": "GR21: on a restored copy the group is suspended until an operator resumes it",
    "marked": "GR21: everything that waits at the resume is then doubtful",
    "open": "GR21: so are the claimed messages and the dead letters of the copy",
    "begun": "GR23: a new process tells which messages it had begun, together with what goes back",
    "cut": "GR23: after a power cut all claims are reported as begun",
    "own": "GR24: a handler commits only for the claim of its own message",
    "hands": "GR25: one handler of a member at a time has a message of a part",
    "ended_wait": "GR26: a WORK that waits is ended by the member's next one",
    "moment": "GR26: the answer of a WORK that waited shows the state at the time of the answer",
    "waited": "GR27: a WORK that waited is answered with offers, never with new claims",
    "close": "GR28: a member that closes gives back what it has, and tells it",
    "close_answer": "GR28: it closes after the answer",
    "end_number": "GR29: the end of a group has a number, and a late SUBSCRIBE with a lower one makes nothing",
    "highest": "GR29: in a merge the higher number wins",
    "superseded": "GR30: a WORK under another number of the group changes nothing",
    "later": "GR31: a delayed message is offered and claimed only from its not-before time on",
    "behind": "GR31: in a keyed group the part waits behind a delayed message",
    "failover": "GR32: claims survive a failover",
    "forget": "GR33: only a member that holds nothing is forgotten",
    "under_way": "GR33: and only once no WORK of it can be under way",
}

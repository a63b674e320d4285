"""Outgoing rows: messages that any program inserts in its own transactions, and that one relay sends after the commit.

The tables are those of the SQL files beside this module. `writing` inserts rows by a caller's connection. `relay` takes
them, in the order of `packing`, into the outbox of a client whose state is in the same database.
"""

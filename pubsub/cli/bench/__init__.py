"""`pubsub bench`: how fast the service is on this machine, beside what its disk can do at all.

command   the command line, and the order in which measures run
measures  what is measured: puts, gets and how long a put takes
floors    what the disk can do: an append with fdatasync
stage     the cluster under measurement
table     results: medians, shares, the table and the JSON

A checkout has more in `benchmarks/`, beside other software and at the edges of what the service can hold.
"""

from typing import Final

END: Final = b"end"
"""The message after which a consumer has all."""

BATCH: Final = 1_000
"""Records of a put batch where nothing else is said."""

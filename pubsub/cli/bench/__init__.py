"""`pubsub bench`: the speed of the service on this machine, next to the limits of its disk.

command   the command line, and the order in which measures run
measures  the measures: puts, gets and the time of a put
floors    the limit of the disk: an append with fdatasync
stage     the cluster under measurement
table     results: medians, shares, the table and the JSON

`benchmarks/` in a checkout has more measures: of other software, and at the limits of the service.
"""

from typing import Final

END: Final = b"end"
"""The last message of a measure; a consumer stops after it."""

BATCH: Final = 1_000
"""Default records of a put batch."""

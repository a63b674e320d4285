"""`pubsub bench`: how fast the service is on this machine, beside what the machine can do at all.

command   the command line: which measures run, how often, in which order
measures  what is measured, one function each, and the table of them
growth    the same for what grows: backlog, topics, subscriptions, memory
floors    what the machine can do: an append with fdatasync, an echo through a forwarding proxy
stage     the cluster under measurement; worker: producers, consumers and echoes in processes of their own
wire      the bare protocol, for what ten thousand subscriptions would take too many clients for
redis     the same work through Redis streams
table     results: medians, shares, the table and the JSON
"""

"""Benchmarks of a checkout, which no wheel has: `scripts/bench`, or `python -m benchmarks`.

command        the command line, and what each measure is compared with
measures       what is measured, one function each, and the table of them
concurrent     one message at a time by many callers of one client
growth         what grows: backlog, topics, subscriptions, memory
floors         what the machine can do: an append with fdatasync, an echo through a forwarding proxy
stage          the cluster under measurement; worker: producers, consumers and echoes in processes of their own
wire           the bare protocol, for what ten thousand subscriptions would take too many clients for
redis          the same work through Redis streams
standby        a server with two members
http           a gateway; http_load: a server that does nothing, and a client that costs little
spark          Spark's source and sink; spark_queries: the queries
services       the Majordomo broker
"""

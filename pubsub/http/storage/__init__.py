"""The stored state of reliable requests: outbox, inbox, tombstones."""

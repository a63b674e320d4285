"""What reliable requests keep on the disk: outbox, inbox, tombstones."""

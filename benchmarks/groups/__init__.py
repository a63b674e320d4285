"""`scripts/bench --groups`: consumer groups, beside a single subscriber and beside peers."""

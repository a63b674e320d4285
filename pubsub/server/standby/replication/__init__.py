"""Replication: the primary's commits as entries, the standby's confirmations, and repairs from the other member."""

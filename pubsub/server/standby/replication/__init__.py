"""A primary's commits as entries, the standby's confirmation of each, and batches asked of the other member."""

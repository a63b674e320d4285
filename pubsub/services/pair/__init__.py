"""One server of a Binary Star pair as a process."""

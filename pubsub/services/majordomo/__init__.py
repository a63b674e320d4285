"""The Majordomo broker as a process."""

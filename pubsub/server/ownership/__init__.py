"""The ownership of topics: announcements to proxies, their answers, and contested topics."""

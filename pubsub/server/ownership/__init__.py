"""Which server holds a topic: what proxies are told, what they answer, and what is contested."""

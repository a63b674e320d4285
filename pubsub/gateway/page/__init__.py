"""The page's files, served by the gateway."""

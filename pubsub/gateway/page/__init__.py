"""The page's files, as the gateway hands them out."""

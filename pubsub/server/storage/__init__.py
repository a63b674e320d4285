"""The server's store on disk."""

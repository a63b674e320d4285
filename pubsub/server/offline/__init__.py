"""What is done with a store while no server runs on it."""

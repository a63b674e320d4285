"""What two reports on a cluster say together, for the gateway's page and `pubsub top` alike."""

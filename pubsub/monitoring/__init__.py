"""Views of cluster reports for the gateway's page and `pubsub top`."""

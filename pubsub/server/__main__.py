"""`python -m server` from a checkout: the commands of `pubsub server`."""

import sys

from pubsub.server.commands import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m client` from a checkout: the commands of `pubsub client`."""

import sys

from pubsub.client.commands import main

if __name__ == "__main__":
    sys.exit(main())

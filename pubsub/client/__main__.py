"""Run the commands of `pubsub client` as `python -m client` in a checkout."""

import sys

from pubsub.client.commands import main

if __name__ == "__main__":
    sys.exit(main())

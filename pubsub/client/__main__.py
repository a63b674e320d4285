"""`python -m client …` in a checkout: the commands of `pubsub client`."""

import sys

from pubsub.cli import main

if __name__ == "__main__":
    sys.exit(main(["client", *sys.argv[1:]]))

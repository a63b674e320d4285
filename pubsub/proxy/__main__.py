"""`python -m proxy` from a checkout: the same as `pubsub proxy`."""

import sys

from pubsub.proxy.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

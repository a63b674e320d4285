"""`python -m proxy` from a checkout: the same as `pubsub proxy`."""

import sys

if __name__ == "__main__":
    from pubsub.cli import main

    main(["proxy", *sys.argv[1:]])

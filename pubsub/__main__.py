"""`python -m pubsub`: the same as the command `pubsub`."""

import sys

from pubsub.cli import main

sys.exit(main())

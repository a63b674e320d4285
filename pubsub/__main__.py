"""Run the command `pubsub` as `python -m pubsub`."""

import sys

from pubsub.cli import main

sys.exit(main())

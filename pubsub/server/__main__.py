"""`python -m server` from a checkout: the commands of `pubsub server`."""

import sys

from pubsub.server.commands import main

sys.exit(main())

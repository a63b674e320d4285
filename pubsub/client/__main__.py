"""`python -m client` from a checkout: the commands of `pubsub client`."""

import sys

from pubsub.client.commands import main

sys.exit(main())

"""`python -m benchmarks ARGV…` from a checkout."""

import sys

from benchmarks.command import main

sys.exit(main())

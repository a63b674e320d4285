"""Makes `rig` importable: tests are imported one by one, not as packages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""Tests in the world (inside/) share one account with one cluster; those about worlds (worlds/) make their own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

"""The programs as one runs them from a clone: `python -m src.train_agents`. The library is `icrl`, in this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that a clone works without being installed

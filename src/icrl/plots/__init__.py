"""Figures of all stages, in one style. Programs import the `write_...` functions."""

import os
import sys
from contextlib import suppress

# Figures need no backend, but matplotlib cannot be imported while MPLBACKEND names one that does not exist.
if "MPLBACKEND" in os.environ and "matplotlib" not in sys.modules:
    backend = os.environ.pop("MPLBACKEND")
    import matplotlib as mpl

    with suppress(ValueError):
        mpl.rcParams["backend"] = backend
        os.environ["MPLBACKEND"] = backend

"""Every picture and video, in one style."""

import os
import sys
from contextlib import suppress

# Figures are drawn without pyplot and need no backend; but matplotlib cannot be imported where MPLBACKEND names none.
if "MPLBACKEND" in os.environ and "matplotlib" not in sys.modules:
    backend = os.environ.pop("MPLBACKEND")
    import matplotlib as mpl

    with suppress(ValueError):
        mpl.rcParams["backend"] = backend
        os.environ["MPLBACKEND"] = backend

"""Registration of the further lines about an error. They need Hydra, which acting does without."""

from importlib import import_module
from typing import Any

from icrl.app.root import FURTHER


def further(*given: Any) -> list[str]:
    """See `conflicts.further_conflicts`."""
    return import_module("icrl.extensions.corrections.conflicts").further_conflicts(*given)


FURTHER.append(further)

"""The policies of this extension, and the rules of its options."""

from icrl.extensions.offline_rl.acting import offline_kind
from icrl.extensions.offline_rl.options import OfflineConfig
from icrl.runs import SHARED

__all__ = ["OfflineConfig", "offline_kind"]

SHARED.update(("train_ilql", "extract_policy"))

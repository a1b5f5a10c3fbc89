"""Registration of the check of files, and of what is done before a batch is read."""

from icrl.data.columns import BEFORE_READS
from icrl.data.history_store import CHECKS
from icrl.extensions.large_stores.checked import damaged_files
from icrl.extensions.large_stores.pages import ask_for

CHECKS.append(damaged_files)
BEFORE_READS.append(ask_for)

"""Registration of the further lines about an error."""

from icrl.app.command_line import FURTHER
from icrl.extensions.corrections.conflicts import further_conflicts

FURTHER.append(further_conflicts)

"""Registration of the world."""

from icrl.envs.tasks import CHANGES
from icrl.extensions.changing_tasks.world import changing_tasks

CHANGES.append(changing_tasks)

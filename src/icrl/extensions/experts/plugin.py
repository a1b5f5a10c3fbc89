"""The sources of this extension, and their agents as references."""

from icrl.evaluation.references import AGENTS
from icrl.extensions.experts import dagger, noise_distillation
from icrl.extensions.experts.teachers import agents_of_all_tasks

__all__ = ["dagger", "noise_distillation"]

AGENTS.append(agents_of_all_tasks)

"""Registration of the value head."""

from icrl.extensions.trial_critic.critic import with_values
from icrl.training.policy_gradient import CRITICS

CRITICS.append(with_values)

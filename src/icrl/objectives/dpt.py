"""Decision pretraining (Lee et al., 2023): predict the optimal action at every step, whatever the source did.

    loss = - mean over b, t of w_bt log pi(a*_t | everything before it in the window, o_t)

with the weights w of the batch (1 in the preset). a*_t is the action of a planner that knows the task. Histories record
it beside the action taken. A model trained in this way performs posterior sampling.

*Differences from the paper:* the context is the stream's own past, in order and across episodes, and every step of it
is a query, instead of a shuffled set of transitions with one query state.
"""

from torch import Tensor

from icrl.contracts import Batch
from icrl.objectives.ad import AlgorithmDistillation


class DecisionPretraining(AlgorithmDistillation):
    def target(self, batch: Batch) -> Tensor:
        """Optimal actions, `[B, T]`."""
        return batch.optimal_action

"""Program of every process of `torchrun` in the tests of critics: python parallel_critics.py FOLDER"""

import sys
from pathlib import Path

import critics
import torch
from parallel import check_equal, main, message_of, part_of
from toy import CPU, look

from icrl.contracts import Batch
from icrl.extensions.offline_rl.ilql import ImplicitQLearning
from icrl.runs.distributed import Ranks
from icrl.training.fit import fit
from icrl.training.program import RunContext


def critic(folder: Path, ranks: Ranks) -> str:
    """Q, and V on a trunk of its own."""
    config = critics.config_of(
        critic={"separate_value": True, "horizon": "across_episodes"},
        encoder={"dropout": 0.0},
        decoder={"dropout": 0.0},
        trainer={"num_iterations": 6},
    )
    torch.manual_seed(0)
    model = critics.fresh_critic(config)
    context = RunContext(config, folder, CPU, ranks, {"program": "train_ilql", "run": "f00d"}, [])

    def batches(update: int) -> Batch:
        check_equal(ranks, model)
        return part_of(critics.batch_of(4, seed=update, truncated=[0, 1, 0, 1, 0, 0, 0] * 4), ranks)

    objective = ImplicitQLearning(model)
    return message_of(lambda: fit(context, model, objective, batches, look, after_step=model.after_update))


if __name__ == "__main__":
    main(Path(sys.argv[1]), {"critic": critic})

"""All stages: what train_agents, train_gpt, finetune and evaluate do, in one process, with one import of PyTorch.

python -m src.pipeline [KEY=VALUE ...]

Trials (finetune) follow where they train the model that acts: policy.model=<finetune.experiment_name>. The agents of
stage one are examined and filmed in another process while stage two trains. A stage that is finished is not repeated,
and each can be run alone.
"""

import io
from contextlib import redirect_stderr
from multiprocessing import set_forkserver_preload
from pathlib import Path
from threading import RLock

import torch
from tqdm import tqdm

from icrl.config.options import refuse, replace
from icrl.config.root import Config
from icrl.contracts import Json, PipelineError
from icrl.programs import evaluate, finetune, train_agents, train_gpt
from icrl.runs.processes import Worker

_GLANCE = 60.0  # seconds


def main(config: Config) -> Path:
    """Run or resume all stages; returns the folder with the results."""
    collected = "collect them first with src.train_agents, then give src.pipeline the same options without shard.*"
    refuse(config.shard.count > 1, f"shard.count={config.shard.count}: shards are commands of their own; {collected}")
    set_forkserver_preload([__name__, "torch._dynamo"])  # which every other process of a stage needs
    threads = config.num_threads or torch.get_num_threads()
    train_agents.record(config)
    helper = Worker(_finish, idle=False)
    try:
        helper.give(config)
        tuned = config.policy.model == config.finetune.experiment_name
        if not tuned or config.finetune.start == "gpt":
            train_gpt.main(replace(config, num_threads=max(1, threads - 1)))  # a core is left for the others
        if tuned:
            finetune.main(config)
        torch.set_num_threads(threads)
        if (found := helper.answer(0.0)) is None:
            print("waiting for the other process to examine and film the source agents")
        while found is None:
            found = helper.answer(_GLANCE)
    finally:
        helper.end()
    if isinstance(found, str):
        why = found.strip().splitlines()[-1]
        raise PipelineError(f"the agents could not be examined; run src.train_agents to do it again. {why}")
    train_agents.announce(config, found)
    return evaluate.main(config)


def _finish(config: Config) -> Json:
    """Results of the agents, without a progress bar beside that of stage two."""
    tqdm.set_lock(RLock())  # one of processes would outlive this one
    with redirect_stderr(io.StringIO()):
        return train_agents.finish(config)

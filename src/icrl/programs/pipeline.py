"""All stages: what train_agents, train_gpt, finetune and evaluate do, in one program, with one import of PyTorch.

python -m src.pipeline [KEY=VALUE ...]

Trials (finetune) follow where they train the model that acts: policy.model=<finetune.experiment_name>. On a CPU with
two threads or more, two processes train together in stage two and in trials; num_threads=1 keeps to one. The agents of
stage one are examined and filmed in another process while stage two trains. A stage that is finished is not repeated,
and each can be run alone.
"""

import io
from collections.abc import Callable
from contextlib import redirect_stderr
from multiprocessing import set_forkserver_preload
from pathlib import Path
from threading import RLock

import torch
from tqdm import tqdm

from icrl.app.root import Config
from icrl.config.modules import command_of
from icrl.config.options import replace
from icrl.contracts import Json, PipelineError
from icrl.programs import evaluate, finetune, train_agents, train_gpt
from icrl.recording.record import examined
from icrl.runs.device import device_of
from icrl.runs.distributed import in_ranks
from icrl.runs.processes import Worker

LARGE = "source.num_learners, trainer.mini_batch_size, evaluation.num_streams"

_POLL_SECONDS = 60.0  # seconds
_RANKS = 2  # processes that train together


def main(config: Config) -> Path:
    """Run or resume all stages; returns the folder with the results."""
    tuned = config.policy.model == config.finetune.experiment_name
    if tuned:
        finetune.check(config)
    set_forkserver_preload([__name__, "torch._dynamo"])  # which every other process of a stage needs
    threads = config.num_threads or torch.get_num_threads()
    train_agents.record(config)
    helper = Worker(_examined, idle=False)
    try:
        helper.give(config)
        if not tuned or config.finetune.start == "gpt":
            _train(train_gpt.main, config, threads, _share_windows(config))
        if tuned:
            _train(finetune.main, config, threads, _share_streams(config))
        torch.set_num_threads(threads)
        if (found := helper.answer(0.0)) is None:
            print("waiting for the other process to examine and film the source agents")
        while found is None:
            found = helper.answer(_POLL_SECONDS)
    finally:
        helper.end()
    if isinstance(found, str):
        why = found.strip().splitlines()[-1]
        raise PipelineError(f"the agents could not be examined; run {command_of('train_agents')} to do it again. {why}")
    train_agents.announce(config, found)
    return evaluate.main(config)


def _train(program: Callable[[Config], Path], config: Config, threads: int, shared: bool) -> None:
    """Run a training program on `threads` threads: if it can be `shared`, in several processes on a CPU, because the
    threads of one wait for each other. One process leaves a core for evaluations and films."""
    size = _RANKS if shared and threads >= _RANKS and device_of(config).type == "cpu" else 1
    each = threads // size if size > 1 else max(1, threads - 1)
    in_ranks(program, replace(config, num_threads=each), size)


def _share_windows(config: Config) -> bool:
    """True if several processes can share the batches of stage two."""
    trainer, size = config.trainer, config.trainer.mini_batch_size
    divides = size % (_RANKS * trainer.gradient_accumulation_steps) == 0 and size >= 2 * _RANKS
    return divides and config.optimizer.is_shared


def _share_streams(config: Config) -> bool:
    """True if several processes can share the streams of trials, as far as the options tell their number."""
    options, learned = config.finetune, config.tasks.num_train - config.data.num_development_tasks
    tasks = options.drawn_of(max(0, learned)) + options.num_unsolvable + options.num_rooms
    number = tasks * options.num_streams
    divides = (number if config.tasks.num_train else options.num_streams) % _RANKS == 0  # then so do any tasks
    return divides and number >= _RANKS * options.num_mini_batches


def _examined(config: Config) -> Json:
    """Results of the agents, without a progress bar beside that of stage two."""
    tqdm.set_lock(RLock())  # one of processes would outlive this one
    with redirect_stderr(io.StringIO()):
        return examined(config)

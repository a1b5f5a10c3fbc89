"""All stages: what train_agents, train_gpt, finetune and evaluate do, in one program, with one import of PyTorch.

python -m src.pipeline [KEY=VALUE ...]

With policy.model=finetuned, trials (finetune) follow. On a CPU with two threads or more, two processes train together
in stage two and in trials, with num_threads=1 only one. The agents of stage one are evaluated and filmed in another
process while stage two trains. A finished stage is not repeated, and each stage can be run alone.
"""

from functools import partial
from multiprocessing import set_forkserver_preload
from pathlib import Path

import torch

from icrl.app.root import Config
from icrl.config.modules import command_of
from icrl.config.options import refuse, replace
from icrl.evaluation.kinds import policy_kind
from icrl.programs import evaluate, finetune, train_agents, train_gpt
from icrl.recording.record import examined
from icrl.runs.checkpoint import FINISHED
from icrl.runs.distributed import process_group
from icrl.runs.processes import POOLS
from icrl.training.trials import check_trials

LARGE = "source.num_learners, trainer.mini_batch_size, evaluation.num_streams"


def main(config: Config) -> Path:
    """Run or resume all stages; returns the folder with the results."""
    tuned = config.policy.model == "finetuned"
    _check_stages(config)
    if tuned:
        check_trials(config, records=True)
    set_forkserver_preload([__name__, "torch._dynamo"])  # which every other process of a stage needs
    threads = config.num_threads or torch.get_num_threads()
    ranks = process_group()
    train_agents.record(config)
    with POOLS[-1].begun(partial(examined, config), "examining and filming the source agents") as examination:
        if not tuned or config.finetune.start == "gpt":
            ranks.in_ranks(train_gpt.main, *_shared(config, threads, "train_gpt"))
        if tuned:
            ranks.in_ranks(finetune.main, *_shared(config, threads, "finetune"))
        torch.set_num_threads(threads)  # each training has set its own number
        train_agents.print_results(config, examination())
    return evaluate.main(config)


def _check_stages(config: Config) -> None:
    """Raise `ConfigError` if a stage would read another run than this one, or if the policy needs a training that is
    not finished and no stage of this program, or an update that the training does not reach."""
    for key, names in (("histories", config.histories), ("run", [config.run])):
        what = f"must include name={config.name}, which src.pipeline records and trains"
        how = "leave it out, or run each stage by its own program"
        refuse(config.name not in names, f"{key}={','.join(names)}: {what}; {how}")
    policy = f"policy.model={config.policy.model} with policy.advantage_scale={config.policy.advantage_scale:g}"
    learned = f"objective.name={config.objective.name} is learned by {command_of(config.objective.program)}"
    refuse(config.objective.program != "train_gpt", f"{learned}, which src.pipeline does not run")
    for folder, program in policy_kind(config.policy, config.finetune).parts.items():
        trained = program in ("train_gpt", "finetune") or (config.run_folder / folder / FINISHED).exists()
        how = f"{command_of(program)}, which src.pipeline does not run: run each stage by its own program"
        refuse(not trained, f"{policy} needs {how}")
    update, key, last = config.evaluation.checkpoint, "trainer.num_iterations", config.trainer.num_iterations
    if config.policy.model == "finetuned":
        options = config.finetune
        key, last = "finetune.num_iterations", options.num_iterations * options.num_mini_batches
    beyond = isinstance(update, int) and not 0 < update <= last
    refuse(beyond, f"evaluation.checkpoint={update}: must be best, last, or 1 to {last}, the updates of {key}")


def _shared(config: Config, threads: int, program: str) -> tuple[Config, int]:
    """Options of a training program on `threads` threads, and its number of processes. One process leaves a core for
    evaluations and films."""
    size = process_group().size_for(program, config, threads)
    each = threads // size if size > 1 else max(1, threads - 1)
    return replace(config, num_threads=each), size

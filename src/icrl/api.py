"""Public front of the library: train a model, load it, act with it anywhere, make worlds, play and evaluate.

>>> import gymnasium, icrl
>>> folder = icrl.train("experiment=tour", "seed=1")  # doctest: +SKIP
>>> policy = icrl.load(folder)  # doctest: +SKIP
>>> env = gymnasium.make("icrl:icrl/DarkRoom-v0", goal=(4, 0), size=7, max_episode_steps=15)  # doctest: +SKIP
>>> returns = icrl.rollout(policy, env, num_episodes=20)  # doctest: +SKIP

`train`, `finetune`, and `make_env` of a preset need the packages of the extra `[train]`; all others only PyTorch,
NumPy, Gymnasium, safetensors and pydantic. `icrl.__version__` is the version of the package.
`world`, `source`, `objective`, `encoder` and `trunk` are decorators of classes of the user's own.
"""
# ruff: noqa: F401 - an import that is not used here is public: `icrl.__all__` lists all names

import math
import multiprocessing
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from icrl.app.root import Config
from icrl.config.modules import extra_module, load_plugins, recorded_options
from icrl.config.options import refuse, replace
from icrl.contracts import ConfigError
from icrl.data.history_store import open_histories
from icrl.envs import make_env as make_world
from icrl.envs.core import EnvConfig, TensorEnv, world
from icrl.evaluation.in_context import LEAST_TEMPERATURE, Adaptation, play_episodes
from icrl.evaluation.kinds import READERS, PolicyLoader, plain_gpt, policy_kind
from icrl.nn.encoders import encoder
from icrl.nn.gpt_policy import GPTPolicy, InContextPolicy, PolicyConfig, column_of
from icrl.nn.transformer import trunk
from icrl.objectives import objective
from icrl.runs.checkpoint import FINISHED, DamagedCheckpointError, open_model, sidecar_of
from icrl.runs.files import content_of
from icrl.sources import source
from icrl.spaces import EnvSpec
from icrl.training.policy_gradient import FinetuneConfig

Stage = Literal["all", "train_agents", "train_gpt", "finetune", "evaluate"]


def load(
    run_folder: str | Path,
    *,
    model: str | None = None,
    checkpoint: str | int = "last",
    temperature: float | None = None,
    seed: int = 0,
) -> InContextPolicy:
    """Load a model as a policy: that of the run in `run_folder`, such as `logs/dark_room-a2c`, or of a folder that an
    extension reads, such as an exported model.

    `model` is "gpt", of stage two, "finetuned", of trials, or one of an extension, as in `policy.model` (None: what
    `policy.model` of the run's stage two says, or "finetuned" if it has no "gpt"). `checkpoint` is "last", "best" or
    the number of an update, such as that of a snapshot. Actions are drawn at `temperature` (None: as the run was
    configured; 0: the most probable action is taken), with random numbers that follow from `seed`.

    Files are read as numbers and names: nothing that they name is imported or called. If the run used a module of your
    own, import it before. Raises `ConfigError` for arguments that name no folder or model, and `PipelineError`, with
    the name of the file, for files that are damaged, were changed, or need a module that was not imported."""
    device, folder = torch.device("cpu"), Path(run_folder).absolute()
    number = 0 if temperature is None else temperature
    sound = isinstance(number, Real) and (number == 0 or LEAST_TEMPERATURE <= number < math.inf)
    refuse(not sound, f"temperature={temperature}: must be None, 0, or at least {LEAST_TEMPERATURE}")
    known = checkpoint in ("last", "best") or (type(checkpoint) is int and checkpoint >= 0)
    refuse(not known, f"checkpoint={checkpoint}: must be last, best, or the number of an update")
    refuse(not isinstance(seed, int) or abs(seed) >= 2**63, f"seed={seed}: must be an int of 64 bits")
    refuse(model is not None and not isinstance(model, str), f"model={model}: must be None, or the name of a model")
    refuse(not folder.is_dir(), f"{folder}: there is no such folder")
    load_plugins()
    make: PolicyLoader = plain_gpt
    if read := next((read for file, read in READERS.items() if (folder / file).exists()), None):
        one = f"{folder} is not a run and has only one model"
        refuse(checkpoint != "last", f"checkpoint={checkpoint}: {one}: give last")
        refuse(model, f"model={model}: {one}: leave it out")
        weights, about, path = read(folder)
    else:
        if model is None and not (folder / "gpt" / FINISHED).exists():  # with finetune.start=none there is no "gpt"
            model = "gpt" if (folder / "gpt").exists() or not (folder / "finetuned").exists() else "finetuned"
        if model is None:
            about = open_model(folder / "gpt", "last", "train_gpt", device)[1]
            recorded = recorded_options(Config, about["description"]["config"], sidecar_of(folder / "gpt", about))
            policy, trials = recorded.policy, recorded.finetune
        else:
            policy, trials = replace(PolicyConfig(), model=model), FinetuneConfig()
        kind = policy_kind(policy, trials)
        make, folder = kind.load, folder / kind.folder
        state, about = open_model(folder, checkpoint, kind.program, device)
        weights, path = state["model"], sidecar_of(folder, about)
    described = about["description"]
    config = recorded_options(Config, described["config"], path)
    other = model not in (None, "gpt", "finetuned")  # which the run may not be of
    with content_of(path, ConfigError if other else DamagedCheckpointError):
        network = make(config, EnvSpec.of(described["env"]), weights, device)
        options, is_sampled = config.policy, float(temperature != 0)
        policy = GPTPolicy(network, is_sampled, temperature or options.temperature, options.context_kept)
        return InContextPolicy(policy, config, about, seed)


def train(*options: str, stage: Stage = "all") -> Path:
    """Train a model from scratch with the `options` of the command line, or run one `stage`.

    Returns the run's folder, which `load` reads; after "train_agents" that of its histories, which `open_histories`
    reads. The same call continues an interrupted run, and repeats nothing that is finished. Progress is printed.

    >>> folder = icrl.train("env.size=7", "seed=1", "name=small-room")  # doctest: +SKIP
    >>> histories = icrl.train("env.size=7", "seed=1", "name=small-room", stage="train_agents")  # doctest: +SKIP

    It starts processes, so a script needs `if __name__ == "__main__":` around the call. Raises `ConfigError` for wrong
    options, as the command line does, and if the extra `[train]` is not installed."""
    refuse(stage not in get_args(Stage), f"stage={stage}: must be one of {', '.join(get_args(Stage))}")
    started = getattr(multiprocessing.current_process(), "_inheriting", False)  # as multiprocessing itself asks
    again = "training starts processes, and each imports the script again: put the call below"
    refuse(started, f'icrl.train: {again} `if __name__ == "__main__":`')
    config = extra_module("icrl.app.compose", "icrl.train").load_config(options)
    program = "pipeline" if stage == "all" else stage
    made = extra_module(f"icrl.programs.{program}", "icrl.train").main(config)
    return made if stage == "train_agents" else made.parent


def finetune(*options: str) -> Path:
    """Fine-tune a trained model by policy gradients over whole trials, as `train(*options, stage="finetune")`. Load it
    with `load(folder, model="finetuned")`."""
    return train(*options, stage="finetune")


def make_env(preset: str | EnvConfig = "dark_room", *overrides: str) -> TensorEnv:
    """Make a tensor world from a preset of `env=` and options, or that of a model from its `policy.config.env`.

    >>> env = make_env("dark_room", "env.size=5")
    >>> env.all_tasks().shape
    torch.Size([24, 1])
    """
    if isinstance(preset, EnvConfig):
        refuse(overrides, f"{' '.join(overrides)}: these change options of a preset, not of a model")
        return make_world(preset)
    options = [f"env={preset}", "source.num_envs=1", *overrides]  # one long row, so that all lengths fit
    return make_world(extra_module("icrl.app.compose", "icrl.make_env of a preset").load_config(options).env)


def rollout(
    policy: InContextPolicy, env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any], num_episodes: int, seed: int = 0
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Play `num_episodes` episodes of every stream of a Gymnasium environment from an empty context.

    Returns the returns `[B, num_episodes]`. Raises `ConfigError` for actions unlike the policy's, or not SAME_STEP."""
    refuse(num_episodes < 1, f"num_episodes={num_episodes}: must be at least 1")
    same_step = AutoresetMode.SAME_STEP
    batch = env if isinstance(env, VectorEnv) else SyncVectorEnv([lambda: env], autoreset_mode=same_step)
    refuse(batch.metadata.get("autoreset_mode") != same_step, f"autoreset_mode of the environments must be {same_step}")
    known, actions = policy.spec.action_space, batch.single_action_space
    sizes = [name for name in ("n", "start", "nvec", "low", "high") if hasattr(known, name)]  # whatever the dtypes
    one, other = ([np.float32(getattr(space, name, np.nan)) for name in sizes] for space in (known, actions))
    foreign = not all(map(np.array_equal, one, other))
    refuse(foreign, f"env.action_space={actions}: must be {known}, as where the model was trained")
    policy.reset(batch.num_envs)
    obs, _ = batch.reset(seed=seed)
    returns, number = np.zeros((batch.num_envs, num_episodes)), np.zeros(batch.num_envs, dtype=int)
    action = policy.act(obs)
    while (playing := number < num_episodes).any():
        obs, reward, terminated, truncated, _ = batch.step(action)
        returns[playing, number[playing]] += reward[playing]
        number += np.logical_or(terminated, truncated)
        action = policy.act(obs, reward, terminated, truncated)
    return returns


def evaluate(
    policy: InContextPolicy, env: TensorEnv, tasks: Any, num_episodes: int = 40, num_streams: int = 20
) -> Adaptation:
    """Play `num_episodes` episodes in `num_streams` streams of each of the `tasks` `[G, task_dim]` of a tensor world.

    Returns the results of all episodes, `[G, num_streams, num_episodes]` each: `returns`, `success`, `steps_to_goal`,
    `lengths`. In an episode without success, the steps to the goal are its length, also if a pit ended it early. The
    program `evaluate` adds references, ablations and intervals. Raises `ConfigError` for tasks that are not of this
    world, or a world with other spaces than the model's."""
    for name, number in (("num_episodes", num_episodes), ("num_streams", num_streams)):
        refuse(number < 1, f"{name}={number}: must be at least 1")
    for name in ("observation_space", "action_space", "width"):
        own, theirs = getattr(policy.spec, name), getattr(env.spec, name)
        refuse(own != theirs, f"env.spec.{name}={theirs}: must be {own}, as where the model was trained")
    known = env.all_tasks()
    refuse(0 in np.shape(tasks), "tasks=[]: must have at least one row")
    rows = column_of("tasks", tasks, (*np.shape(tasks)[:1], *known.shape[1:]), known.dtype, "task")
    if not known.is_floating_point():  # else a task may be any vector
        strange = rows[~(rows[:, None] == known).all(-1).any(1)].tolist()
        refuse(strange, f"tasks={strange[:1]}: must be rows of env.all_tasks(), which has {len(known)}")
    return play_episodes(policy.policy, env, rows, num_streams, num_episodes, policy.seed)[0]

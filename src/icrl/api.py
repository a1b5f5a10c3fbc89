"""Public front of the library: load a trained model, act with it anywhere, make worlds, play and evaluate.

>>> import gymnasium, icrl
>>> policy = icrl.load("logs/dark_room-a2c")  # doctest: +SKIP
>>> env = gymnasium.make("icrl:icrl/DarkRoom-v0", goal=(2, 7))
>>> returns = icrl.rollout(policy, env, num_episodes=20)  # doctest: +SKIP

`world`, `source`, `objective` and `encoder` are decorators of classes of the user's own.
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from icrl.config.compose import load_config
from icrl.config.modules import recorded_options
from icrl.config.options import refuse
from icrl.config.root import Config
from icrl.contracts import ConfigError, Json
from icrl.data.history_store import open_histories
from icrl.envs import make_env as make_world
from icrl.envs.core import TensorEnv, world
from icrl.envs.rollout import step_of
from icrl.evaluation.exported import ABOUT, WEIGHTS, read_exported
from icrl.evaluation.in_context import Adaptation, play_episodes
from icrl.evaluation.trained import plain_gpt
from icrl.nn.encoders import encoder
from icrl.nn.gpt_policy import GPTCarry, GPTPolicy
from icrl.objectives import objective
from icrl.randomness import Noise, stream_seeds
from icrl.runs.checkpoint import FINISHED, DamagedCheckpointError, sidecar_of
from icrl.runs.files import content_of, read_owned
from icrl.sources import source
from icrl.spaces import EnvSpec
from icrl.training.critics import open_finished

__all__ = [
    "InContextPolicy",
    "encoder",
    "evaluate",
    "load",
    "make_env",
    "objective",
    "open_histories",
    "rollout",
    "source",
    "world",
]


class InContextPolicy:
    """Frozen model of stage two that learns from its context, for B streams of a Gymnasium environment.

    The context holds the streams' past over all their episodes. `reset` empties it.
    """

    def __init__(self, policy: GPTPolicy, config: Config, tasks: Json, seed: int = 0) -> None:
        """`tasks` is the split that the model was trained with: rows of `all` tasks under `train` and `held_out`."""
        self.policy, self.config, self.tasks, self.seed = policy, config, tasks, seed
        self.spec = policy.model.spec  # of the world that the model reads
        self.reset()

    def reset(self, num_streams: int = 1) -> None:
        """Empty the context, and make one for `num_streams` streams."""
        self._carry: GPTCarry = self.policy.initial_carry(num_streams)
        self._noise = Noise(stream_seeds(self.seed, num_streams, purpose=4))
        self._timestep = torch.zeros(num_streams, dtype=torch.long)
        self._started = False

    def act(
        self, obs: Any, reward: Any = None, terminated: Any = None, truncated: Any = None
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """Choose actions `[B, *action_shape]`, int64 or in a Box float32, for observations `obs` `[B, *obs_shape]`.

        Leave out the others in the first step only.

        `reward` `[B]` and the flags `terminated` and `truncated` `[B]` are the answer to the action before. Where an
        episode ended, `obs` is the first observation of the next one (Gymnasium's SAME_STEP mode). Raises `ValueError`
        for wrong shapes, observations or rewards that the model does not know."""
        device = self.policy.model.device
        seen = torch.as_tensor(np.asarray(obs), dtype=self.spec.obs_dtype, device=device).reshape(
            -1, *self.spec.obs_shape
        )
        if self._started == (reward is None):
            raise ValueError("reward=None: leave reward out in the first step after `reset`, and nowhere else")
        others: dict[str, torch.Tensor] = {}
        if reward is not None:
            ended = np.zeros(len(seen), dtype=bool) | np.asarray(terminated) | np.asarray(truncated)
            self._timestep = torch.where(torch.from_numpy(ended), 0, self._timestep + 1)
            values = np.asarray(reward, dtype=float).reshape(-1)
            paid = torch.as_tensor(values, dtype=torch.float32, device=device)
            if self.spec.reward_values:
                paid, known = self.spec.reward_of(self.spec.reward_index(paid)), [*self.spec.reward_values]
                if not np.allclose(paid.cpu(), values):
                    raise ValueError(f"reward={values.tolist()}: the model knows only the rewards {known}")
            others = {"reward": paid, "timestep": self._timestep.to(device)}
        step = step_of(self.spec, obs=seen, **others)
        self._started = True
        action, self._carry = self.policy.act(self._carry, step, next(iter(self._noise.draw(1))).to(device))
        return action.cpu().numpy()


def load(
    run_folder: str | Path,
    *,
    model: str | None = None,
    checkpoint: str | int = "last",
    temperature: float | None = None,
    seed: int = 0,
) -> InContextPolicy:
    """Load a model of the run in `run_folder`, such as `logs/dark_room-a2c`, as a policy; also that of a folder that
    `src.export_model` wrote.

    `model` is "gpt", of stage two, or the folder of a fine-tuned model or an extracted policy beside it (None: the one
    that the run acts with: fine-tuned if its `policy.model` says so, else of stage two).
    `checkpoint` is "last", "best" or the number of an update, such as that of a snapshot. Actions are drawn at
    `temperature` (None: as the run was configured; 0: the most probable action), with luck that follows from
    `seed`.

    Files are read as numbers and names: nothing that they name is imported, called or drawn, so import a module of your
    own that a run used before this. Raises `ConfigError` for arguments that name no model, and `PipelineError`, with
    the name of the file, for files that are damaged, were changed, or need a module that was not imported."""
    device, folder = torch.device("cpu"), Path(run_folder)
    if (folder / WEIGHTS).exists():
        one = f"{folder} is an exported model, which has one"
        refuse(checkpoint != "last", f"checkpoint={checkpoint}: {one}: give last")
        refuse(model, f"model={model}: {one}: leave it out")
        weights, about = read_exported(folder)
        path = folder / ABOUT
    else:
        if model is None:
            about = open_finished(folder / "gpt", "last", "train_gpt", device)[1]
            recorded = recorded_options(Config, about["description"]["config"], sidecar_of(folder / "gpt", about))
            tuned = recorded.finetune.experiment_name
            model = tuned if recorded.policy.model == tuned else "gpt"
        folder, program = folder / model, {"gpt": "train_gpt"}.get(model, "finetune")
        if model != "gpt" and (ended := folder / FINISHED).exists():
            program = read_owned(ended, {})[1].program
        state, about = open_finished(folder, checkpoint, program, device)
        weights, path = state["model"], sidecar_of(folder, about)
    described = about["description"]
    config = recorded_options(Config, described["config"], path)
    with content_of(path, DamagedCheckpointError):
        network = plain_gpt(config, EnvSpec.of(described["env"]), weights, device)
        options, is_sampled = config.policy, float(temperature != 0)
        policy = GPTPolicy(network, is_sampled, temperature or options.temperature, options.context_kept)
        return InContextPolicy(policy, config, described["tasks"], seed)


def make_env(preset: str = "dark_room", *overrides: str) -> TensorEnv:
    """Make a world as tensors, from a preset of `env=` and options.

    >>> env = make_env("dark_room", "env.size=5")
    >>> env.all_tasks().shape
    torch.Size([24, 1])
    """
    return make_world(load_config([f"env={preset}", "source=random", *overrides]).env)


def rollout(
    policy: InContextPolicy, env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any], num_episodes: int, seed: int = 0
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Play `num_episodes` episodes of every stream of a Gymnasium environment from an empty context.

    Returns the returns `[B, num_episodes]`. A vector environment must reset in SAME_STEP mode. Raises `ConfigError`
    otherwise."""
    same_step = AutoresetMode.SAME_STEP
    batch = env if isinstance(env, VectorEnv) else SyncVectorEnv([lambda: env], autoreset_mode=same_step)
    if batch.metadata.get("autoreset_mode") != same_step:
        raise ConfigError("autoreset_mode of the vector environment must be AutoresetMode.SAME_STEP")
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
    """Play `num_episodes` episodes of `num_streams` streams of each of `tasks` `[G, task_dim]` of a world of tensors.

    Returns what each episode came to, `[G, num_streams, num_episodes]` each: `returns`, `success`, `steps_to_goal`,
    `lengths`. The tables of a run with references, ablations and intervals are written by the program `evaluate`."""
    rows = torch.as_tensor(tasks, dtype=torch.long)
    return play_episodes(policy.policy, env, rows, num_streams, num_episodes, policy.seed)[0]

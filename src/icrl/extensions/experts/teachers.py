"""Trained agents as experts of noise distillation: they may be of each task, or one of all tasks, which sees the task.

G tasks, B streams.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icrl.config.modules import command_of
from icrl.config.options import refuse, replace
from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError, Json, PipelineError, Step
from icrl.envs import make_env
from icrl.runs import checkpoint
from icrl.runs.files import check_same, fits
from icrl.sources import source_class, source_of
from icrl.sources.learners import Learner

if TYPE_CHECKING:
    from icrl.config.root import Config


class Informed(Learner):
    """Agents as experts of streams in which no observation shows the task, though theirs do (`env.task_visible`)."""

    def __init__(self, agents: Learner, numbers: Tensor) -> None:
        """`numbers` `[G, k]` of the tasks; streams are ordered by task."""
        self._agents, self._numbers = agents, numbers
        self.num_learners, self.device, self.has_memory = agents.num_learners, agents.device, agents.has_memory
        self.num_tasks = len(numbers)

    def initial_carry(self, num_streams: int) -> Any:
        return self._agents.initial_carry(num_streams)

    def remember(self, carry: Any, step: Step) -> tuple[Step, Any]:
        """`step` as the agents see it: with the numbers of its task, and what they remember."""
        return self._agents.remember(carry, self.told(step, self.own_tasks(len(step.obs))))

    def own_tasks(self, num_streams: int) -> Tensor:
        """Task of each stream, `[B]`, by its place among the tasks."""
        places = torch.arange(self.num_tasks, device=self.device)
        return places.repeat_interleave(num_streams // self.num_tasks)

    def told(self, step: Step, tasks: Tensor) -> Step:
        """`step` with the numbers of these tasks `[B]` in its observations."""
        return step._replace(obs=torch.cat([step.obs, self._numbers[tasks]], dim=-1))

    def act_in_evaluation(self, step: Step, noise: Tensor, sample_probability: float) -> Tensor:
        return self._agents.act_in_evaluation(step, noise, sample_probability)

    def action_probabilities(self, step: Step) -> Tensor:
        return self._agents.action_probabilities(step)


def open_teacher(config: Config, teacher: str, device: torch.device) -> tuple[dict[str, Any], Json]:
    """Last state and sidecar of the finished run `teacher`. Raises `ConfigError` if there is none."""
    folder = PROJECT / config.root / "logs" / teacher / "source"
    found = checkpoint.open_finished(folder, "last", "train_agents", device)
    if found is None:
        how = f"run {command_of('train_agents')} with that name"
        raise ConfigError(f"source.teacher={teacher}: no finished run in {folder}: {how}")
    if not fits(found[1]["description"], {"config": {"env": dict, "source": {"name": str}}}):
        raise PipelineError(f"a checkpoint in {folder} lacks the options of its agents: another version wrote it")
    return found


def is_shared(config: Config, name: str, device: torch.device) -> bool:
    """True if the finished run `name` trained one learner for all tasks."""
    return open_teacher(config, name, device)[1]["description"]["config"]["source"].get("shared", False)


def trained_agents(config: Config, teacher: str, tasks: Tensor, device: torch.device) -> Learner:
    """Learners of `tasks` `[G, task_dim]` as the run `teacher` ended with them. They may have seen the task. Raises
    `ConfigError` if they do not fit this run."""
    agents, source, where = restored(config, teacher, tasks, device), config.source, f"source.teacher={teacher}"
    moved = isinstance(agents, Informed) and source.task_change
    refuse(moved, f"{where} sees the task of a whole stream: give source.task_change=0")
    per_task = agents.num_learners // len(tasks) or 1  # one for all tasks
    streams = f"source.num_learners={source.num_learners} x source.num_envs={source.num_envs}"
    uneven = source.num_learners * source.num_envs % per_task
    refuse(uneven, f"{streams} must be a multiple of the {per_task} learners per task of {where}")
    return agents


def restored(config: Config, teacher: str, tasks: Tensor, device: torch.device) -> Learner:
    """Learners of the finished run `teacher` for `tasks` `[G, task_dim]`; of these tasks alone, unless it is one for
    all. Raises `ConfigError` if they are of another world."""
    state, about = open_teacher(config, teacher, device)
    recorded, where, env = about["description"]["config"], f"source.teacher={teacher}", config.env
    informed = recorded["env"].get("task_visible", False) and not getattr(env, "task_visible", True)
    if informed:
        env = replace(env, task_visible=True)
    check_same(replace(config, env=env), recorded, ("env", "tasks"), where)
    kind, options = source_class(recorded["source"]["name"]), source_of(recorded, where)
    refuse(options.name == "searcher", f"{where} is a searcher, which needs its own past and cannot teach")
    if (above := getattr(options, "teacher", "none")) != "none":
        raise ConfigError(f"{where} does not learn, but imitates source.teacher={above}: give that one")
    with closing(make_env(env)) as world:
        numbers = world.task_numbers(tasks.cpu()).to(device) if informed else None
        seeds = torch.zeros(options.learners_for(len(tasks)), dtype=torch.long, device=device)
        agents = kind(options, world.spec, seeds, device)
    agents.load_state_dict(state["learner"])
    return agents if numbers is None else Informed(agents, numbers)

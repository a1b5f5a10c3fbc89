"""Trained agents as experts of noise distillation: they may be of each task, or one of all tasks, which sees the task.

G tasks, B streams.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from icrl.app.root import Config
from icrl.config.modules import command_of
from icrl.config.options import refuse, replace
from icrl.contracts import ConfigError, Json, PipelineError, Policy, Step
from icrl.envs import make_env
from icrl.envs.core import EXPERT
from icrl.runs import checkpoint
from icrl.runs.files import PROJECT, check_same, has_form
from icrl.sources import source_class, source_of
from icrl.sources.collect import SampledOrGreedy
from icrl.sources.learners import Learner

Opened = tuple[dict[str, Any], Json]  # last state of a finished run, and its sidecar

# As a teacher has no model: values that break no rule.
_UNUSED = ("tasks.num_train=2", "data.num_development_tasks=1", "model.context_len=2", "evaluation.num_episodes=2")


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


def run_of_teacher(config: Config, teacher: str, given: list[str]) -> Config:
    """Configuration of the run that trains the `teacher`, by the options `given` in `source.expert`. Raises
    `ConfigError` for wrong options, or a world that cannot show its tasks."""
    from icrl.app.compose import load_config  # noqa: PLC0415, needs Hydra, which only training does

    name, shows = config.env.name, hasattr(config.env, "task_visible")
    refuse(not shows, f"source.expert={given}: env.name={name} has no env.task_visible, so no expert can see its tasks")
    try:
        world = [f"env.name={name}", f"env.max_episode_steps={config.env.max_episode_steps}"]
        source = load_config([*world, *_UNUSED, *given]).source
    except ConfigError as error:
        raise ConfigError(f"source.expert={given}: {error}") from error
    refuse(
        getattr(source, "teacher", "none") != "none",
        f"source.expert={given}: a teacher must not have a teacher of its own",
    )
    names = {"name": teacher, "run": teacher, "histories": [teacher]}
    return replace(config, source=source, env=replace(config.env, task_visible=True), **names)


def open_teacher(config: Config, teacher: str, device: torch.device) -> Opened:
    """Last state and sidecar of the finished run `teacher`. Raises `ConfigError` if there is none."""
    return open_agents(config, teacher, f"source.teacher={teacher}", device)


def trained_agents(config: Config, teacher: str, tasks: Tensor) -> Learner:
    """Learners of `tasks` `[G, task_dim]` as the run `teacher` ended with them. They may have seen the task. Raises
    `ConfigError` if they do not fit this run."""
    agents, source, where = agents_of_teacher(config, teacher, tasks), config.source, f"source.teacher={teacher}"
    moved = isinstance(agents, Informed) and source.task_change
    refuse(moved, f"{where} sees one task for a whole stream: give source.task_change=0")
    per_task = agents.num_learners // len(tasks) or 1  # one for all tasks
    streams = [("source.num_envs", source.num_envs, "")]
    if source.evaluate:
        played = config.evals.num_eval_environments
        streams.append(("evals.num_eval_environments", played, ", with source.evaluate=true"))
    for key, number, why in streams:
        given = f"source.num_learners={source.num_learners} x {key}={number}"
        of = f"of the {per_task} learners per task of {where}{why}"
        refuse(source.num_learners * number % per_task, f"{given} must be a multiple {of}")
    return agents


def agents_of_teacher(config: Config, teacher: str, tasks: Tensor) -> Learner:
    """Learners of the finished run `teacher` for `tasks` `[G, task_dim]`. Raises `ConfigError` if they cannot teach, or
    are of another world."""
    opened, env, where = open_teacher(config, teacher, tasks.device), config.env, f"source.teacher={teacher}"
    shown = opened[1]["description"]["config"]["env"].get("task_visible", False)
    informed = shown and not getattr(env, "task_visible", True)
    if informed:
        env = replace(env, task_visible=True)
    agents = restored(replace(config, env=env), opened, where, tasks)
    options = agents.config
    refuse(options.in_context, f"{where} is a {options.name}, which needs its own past and cannot teach")
    if (above := getattr(options, "teacher", "none")) != "none":
        raise ConfigError(f"{where} does not learn, but imitates source.teacher={above}: give that one")
    if not informed:
        return agents
    with closing(make_env(env)) as world:
        numbers: Any = getattr(world, "task_numbers", None)
        refuse(numbers is None, "env.task_visible needs a world of vectors whose tasks are numbers")
        return Informed(agents, numbers(tasks.cpu()).to(tasks.device))


def open_agents(config: Config, run: str, where: str, device: torch.device) -> Opened:
    """Last state and sidecar of the finished `run`. Raises `ConfigError`, which begins with `where`, if there is
    none."""
    folder = PROJECT / config.root / "logs" / run / "source"
    opened = checkpoint.open_finished(folder, "last", "train_agents", device)
    if opened is None:
        how = f"run {command_of('train_agents')} with that name"
        raise ConfigError(f"{where}: no finished run in {folder}: {how}")
    if not has_form(opened[1]["description"], {"config": {"env": dict, "source": {"name": str}}}):
        raise PipelineError(f"a checkpoint in {folder} lacks the options of its agents: another version wrote it")
    return opened


def restored(config: Config, opened: Opened, where: str, tasks: Tensor) -> Learner:
    """Learners of an `opened` run for `tasks` `[G, task_dim]`; of these tasks alone, unless it is one for all. Raises
    `ConfigError`, which begins with `where`, if they are of another world than that of `config`."""
    state, about = opened
    recorded = about["description"]["config"]
    check_same(config, recorded, ("env", "tasks"), where)
    options, device = source_of(recorded, where), tasks.device
    with closing(make_env(config.env)) as world:
        seeds = torch.zeros(options.learners_for(len(tasks)), dtype=torch.long, device=device)
        agents: Learner = source_class(options.name)(options, world.spec, seeds, device)
    agents.load_state_dict(state["learner"])
    return agents


def agents_of_all_tasks(config: Config, tasks: Tensor) -> dict[str, Policy[Any]]:
    """Agents that learned all tasks at once, for `tasks` `[G, task_dim]`: the teacher of the source, and the source
    itself. They choose their most probable actions."""
    agents, teacher = dict[str, Learner](), getattr(config.source, "teacher", "none")
    if teacher != "none":
        trained = open_teacher(config, teacher, tasks.device)[1]["description"]["config"]
        if trained["source"].get("shared", False):
            agents[EXPERT] = agents_of_teacher(config, teacher, tasks)
    if config.source.shared and len(config.histories) == 1:
        where = f"histories={config.histories[0]}"
        opened = open_agents(config, config.histories[0], where, tasks.device)
        agents["one agent for all tasks"] = restored(config, opened, where, tasks)
    return {name: SampledOrGreedy(learner, 0.0) for name, learner in agents.items()}

"""Noise distillation (Zisman et al., 2023, "Emergence of in-context reinforcement learning from noise distillation",
arXiv 2312.12275): histories that improve without a learning agent, because noise falls over a run,

    pi_t(a | s) = noise(t) / A + (1 - noise(t)) * pi_expert(a | s)

In a Box of actions the action itself is the mixture, as in Vintix (Polubarov et al., 2025, arXiv 2501.19400),

    a_t = noise(t) * u + (1 - noise(t)) * a_expert(s),    u uniform in the Box

The expert is the planner, whose action is in `Step.optimal_action`, or the trained agents of another run. The limits of
noise 0 and 1 are sources of their own, `optimal` and `random`.

An expert that sees the task visits little that a model meets before it knows the task. With `wrong_task` it acts for
another training task in some episodes. Labels (`objective=dpt`) stay those of the right one.
"""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor
from torch.nn.functional import one_hot

from icrl.app.root import Config
from icrl.config.options import Name, OneOrMore, Text, option, refuse
from icrl.contracts import Env, Rollout, Sample, Step, UpdateResult
from icrl.envs import make_env
from icrl.envs.policies import uniform_actions
from icrl.extensions.experts.teachers import Informed, open_teacher, run_of_teacher, trained_agents
from icrl.randomness import several
from icrl.sources import source
from icrl.sources.learners import Learner
from icrl.sources.options import Conflicts, Share, SourceConfig, falling, named
from icrl.spaces import EnvSpec


class UnlearnedConfig(SourceConfig):
    learns: ClassVar[bool] = False


class NoiseDistillationConfig(UnlearnedConfig):
    name: Literal["noise_distillation"] = named("noise_distillation")
    noise: Share = option(falling(0.9), "probability of a uniformly random action instead of the expert's")
    teacher: Name = option("none", "name of the stage-one run whose trained agents are the experts (none: the planner)")
    wrong_task: Share = option(
        0.0,
        "probability, at the start of each episode, that a teacher that sees the task acts for another training task",
    )
    expert: Annotated[list[Text], OneOrMore, "a list of KEY=VALUE"] = option(
        [],
        "options of a run that trains the teacher first, in the same world but with env.task_visible=true: "
        "source=PRESET and options of that source ([]: the teacher exists)",
    )

    former = {"max_performance": 1.0}

    def conflicts(self) -> Conflicts:
        yield from super().conflicts()
        yield self.expert and self.teacher == "none", "$expert trains a teacher that has no name: give $teacher"
        lacking = "$wrong_task needs a teacher that sees the task: give $teacher"
        yield self.wrong_task and self.teacher == "none", lacking

    def run_before(self, config: Config) -> Config | None:
        return run_of_teacher(config, self.teacher, self.expert) if self.expert else None

    def inputs(self, config: Config) -> dict[str, str]:
        if self.teacher == "none":
            return {}
        return {"source.teacher": open_teacher(config, self.teacher, torch.device("cpu"))[1]["state_sha256"]}

    def alone(self) -> dict[str, Any] | None:
        return {} if self.teacher == "none" else None  # which knows training tasks only


class OptimalConfig(UnlearnedConfig):
    name: Literal["optimal"] = named("optimal")


class RandomConfig(UnlearnedConfig):
    name: Literal["random"] = named("random")


def check_planner(config: Config, taught: str = "") -> None:
    """Raise `ConfigError`, which proposes `taught` too, unless the world tells the optimal action."""
    with closing(make_env(config.env)) as world:
        known = world.has_planner
    needs = f"source.name={config.source.name} needs the optimal action, which is unknown with"
    refuse(not known, f"{needs} env.name={config.env.name}: give {taught}env.expert, if the environment has one")


@source("noise_distillation", NoiseDistillationConfig)
class NoiseDistillation(Learner):
    """L learners that imitate `expert`, which is the planner if it is None, with noise; they learn nothing."""

    constant_noise: float | None = None  # in place of the option
    expert: Any = None

    @classmethod
    def create(cls, config: Config, env: Env[Any], tasks: Tensor, seeds: Tensor, device: torch.device) -> Self:
        """Learners with their expert. Raises `ConfigError` without a planner or such a teacher."""
        learners, options = super().create(config, env, tasks, seeds, device), config.source
        teacher = getattr(options, "teacher", "none")
        if teacher != "none":
            learners.expert = trained_agents(config, teacher, tasks)
            learners.has_memory = learners.expert.has_memory
            unfit = learners.is_misled and (learners.has_memory or not isinstance(learners.expert, Informed))
            needs = "must have been trained with env.task_visible=true and without a memory"
            refuse(unfit, f"source.wrong_task: source.teacher={teacher} {needs}; give source.wrong_task=0")
        elif cls.constant_noise != 1:
            check_planner(config, "source.teacher=RUN, or " if hasattr(options, "teacher") else "")
        return learners

    @property
    def noise(self) -> Tensor:
        """Probability of a uniformly random action now, `[L]`."""
        noise = self.rate("noise") if self.constant_noise is None else self.constant_noise
        return torch.full((self.num_learners,), noise, device=self.device)

    @classmethod
    def check_spaces(cls, name: str, spec: EnvSpec) -> None:
        mixed, told = isinstance(spec.action_space, (Discrete, Box)), "Discrete actions or a Box of them, not"
        refuse(not mixed and cls.constant_noise != 1, f"source.name={name} needs {told} {spec.action_space}")

    @property
    def is_misled(self) -> bool:
        """True if the expert may be told a wrong task."""
        return self.expert is not None and getattr(self.config, "wrong_task", 0.0) != 0.0

    def initial_carry(self, num_streams: int) -> Any:
        """Memory of the expert, or the task that it is told, `[B]`."""
        nothing = super().initial_carry(num_streams)
        if self.is_misled:
            return self.expert.own_tasks(num_streams)
        return self.expert.initial_carry(num_streams) if self.has_memory else nothing

    def remember(self, carry: Any, step: Step) -> tuple[Step, Any]:
        """`step` as the expert sees it."""
        return self.expert.remember(carry, step) if self.expert else (step, carry)

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        if self.is_misled:
            carry = torch.where(step.timestep == 0, self._drawn_tasks(noise), carry)
            step = self.expert.told(step, carry)
        else:
            step, carry = self.remember(carry, step)
        return self.act_in_evaluation(step, noise, 1.0), carry

    def _drawn_tasks(self, noise: Tensor) -> Tensor:
        """Task that the expert of each stream is told from now on, `[B]`."""
        wrong, which = several(noise, 2, purpose=1).unbind(1)
        own, number = self.expert.own_tasks(len(noise)), self.expert.num_tasks
        other = (own + 1 + (which * (number - 1)).long()) % number
        return torch.where(wrong < self.rate("wrong_task"), other, own)

    def act_in_evaluation(self, step: Step, noise: Tensor, sample_probability: float) -> Tensor:
        """In a Box the mixture of a uniform action and the expert's, whatever `sample_probability` is."""
        space = self._spec.action_space
        if not isinstance(space, Box):
            return super().act_in_evaluation(step, noise, sample_probability)
        drawn = uniform_actions(self._spec, step.obs, noise)
        share = self._shares(len(noise)).view(-1, *[1] * len(space.shape))
        best = self.expert.act_in_evaluation(step, noise, 0.0) if self.expert else step.optimal_action
        return torch.where(share == 1.0, drawn, share * drawn + (1 - share) * best)

    def _shares(self, num_streams: int) -> Tensor:
        """Noise of each stream, `[B]`."""
        return self.noise.repeat_interleave(num_streams // self.num_learners)

    def action_probabilities(self, step: Step) -> Tensor:
        share = self._shares(len(step.obs))[:, None]
        num_actions, legal = self._spec.num_actions, self._spec.legal(step.obs)
        uniform = share / num_actions if legal is None else share * legal / legal.sum(1, keepdim=True)
        if (share == 1.0).all():  # needs no expert, and so no planner
            return uniform.expand(-1, num_actions)
        best = self.expert.action_probabilities(step) if self.expert else one_hot(step.optimal_action, num_actions)
        return uniform + (1 - share) * best

    def recorded(self, transitions: Rollout, carry: Any) -> Rollout:
        """With agents as experts, their best actions in place of optimal ones that the world does not know."""
        if not self.expert or not self._spec.is_unknown(transitions.optimal_action.cpu().numpy()).all():
            return transitions
        best, zero = list[Tensor](), torch.zeros(transitions.reward.shape[1], device=transitions.reward.device)
        for obs, time in zip(transitions.obs, transitions.timestep, strict=True):
            step = Step(obs, zero, zero.bool(), zero.bool(), obs, time, self._spec.unknown_action(time))
            step, carry = self.expert.remember(carry, step)
            best.append(self.expert.act_in_evaluation(step, zero, 0.0))  # for the right task
        return transitions._replace(optimal_action=torch.stack(best))

    def update(self, sample: Sample) -> UpdateResult:
        """Report the noise; nothing is learned."""
        return UpdateResult({"noise": self.noise})


@source("optimal", OptimalConfig)
class Optimal(NoiseDistillation):
    """The planner, from the first step to the last."""

    constant_noise = 0.0


@source("random", RandomConfig)
class Random(NoiseDistillation):
    """Uniformly random actions, from the first step to the last."""

    constant_noise = 1.0

    def act_in_evaluation(self, step: Step, noise: Tensor, sample_probability: float) -> Tensor:
        if isinstance(self._spec.action_space, MultiDiscrete):
            return uniform_actions(self._spec, step.obs, noise)
        return super().act_in_evaluation(step, noise, sample_probability)

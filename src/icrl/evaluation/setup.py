"""Setup of an evaluation: the model, the policies beside it, the tasks, and where the results go.

G tasks, S streams of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from icrl.config.options import refuse
from icrl.contracts import ConfigError, Json, Policy, Rollout
from icrl.data.history_store import Histories
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.rooms import Room
from icrl.evaluation import protocol, references, report, trained
from icrl.evaluation.diagnostics import OF_DIAGNOSTIC, PROBES, Arrays, Episodes, diagnostics
from icrl.evaluation.in_context import Job, jobs_playing, joined, source_adaptation
from icrl.evaluation.kinds import TrainedPolicy, policy_kind, policy_suffixes
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import Acting, GPTPolicy
from icrl.runs.files import Identity, check_same, identity_of
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.app.root import Config

_WORLD = ("env", "tasks")


@dataclass(frozen=True)
class Setup:
    """Setup of the evaluation of a trained policy in a world."""

    config: Config
    env: TensorEnv
    opened: TrainedPolicy
    compared: tuple[str, ...]  # groups of options that must equal those of the training, beside the world
    suffix: str  # of the folders with results
    model: GPT | Acting
    start: GPT | None  # the model before it was fine-tuned, which plays beside it
    parts: dict[str, list[int]]  # numbers of the tasks by part, the main part first
    store: Histories | None = None  # of the source beside the model

    @property
    def folder(self) -> Path:
        """Folder of the results."""
        return self.config.folder("logs") / f"evaluation{self.suffix}"

    @property
    def is_done(self) -> bool:
        """True if there are results."""
        return (self.folder / report.RESULTS).exists()

    @property
    def identifying(self) -> tuple[str, ...]:
        """Groups of options that identify the results."""
        return (*_WORLD, *self.compared, "seed", "policy", "evaluation")

    @property
    def owner(self) -> Identity:
        return identity_of("evaluate", self.config, self.identifying, {"model": self.opened.checksum})

    @property
    def main(self) -> str:
        """Main part of the tasks."""
        return protocol.shown_part(self.parts)

    @property
    def width(self) -> int:
        """Number of jobs at a time."""
        return torch.get_num_threads() if self.model.device.type == "cpu" else 1

    @cached_property
    def tasks(self) -> dict[str, Tensor]:
        """Tasks by part, `[G, task_dim]` each."""
        every = self.env.all_tasks().to(self.model.device)
        return {part: every[numbers] for part, numbers in self.parts.items()}

    @cached_property
    def policy(self) -> GPTPolicy:
        return trained.policy_of(self.config, self.model)

    @cached_property
    def learners(self) -> dict[str, Policy[Any]]:
        """Policies to play beside the model, by name."""
        tasks, finders = self.tasks[self.main], references.AGENTS if self.store else []
        agents = {name: policy for find in finders for name, policy in find(self.config, tasks).items()}
        before = {protocol.BEFORE: trained.policy_of(self.config, self.start)} if self.start else {}
        return references.references_of(self.env) | agents | before

    @cached_property
    def probes(self) -> dict[str, Policy[Any]]:
        """Probes of the model, by name."""
        return {name: policy for probes_of in PROBES for name, policy in probes_of(self).items()}

    def read_results(self) -> Json | None:
        """Results of an earlier evaluation, None without one. Raises `ConfigError` if options or model differ."""
        if not self.is_done:
            return None
        results, _ = report.read_results(self.folder)
        other = f"another name= with run={self.config.run} histories=[{','.join(self.config.histories)}]"
        check_same(self.config, results["config"], self.identifying, str(self.folder), budgets=False, other=other)
        if results["checkpoint"] != self.opened.checksum:
            raise ConfigError(f"{self.folder} holds results of another model: give another name=, or remove it")
        return results


@contextmanager
def open_setup(config: Config, device: torch.device) -> Iterator[Setup]:
    """The setup that `config` describes, with its world open. `ConfigError`: the training had other options."""
    opened = policy_kind(config.policy, config.finetune).open(config, device)
    before, is_mixture = opened.described["config"], len(config.histories) > 1
    changes = trained.changes_of(config, before)
    compared = opened.compared if is_mixture else (*opened.compared, "source")  # stores of a mixture record their own
    last = config.evaluation.checkpoint == "last"  # others may be older than the extension of a run
    check_same(config, before, compared if changes else (*_WORLD, *compared), str(opened.folder), budgets=last)
    with closing(make_env(config.env, device)) as env:
        spec, parts = env.spec, trained.tasks_by_part(config, opened.described["tasks"])
        if changes:
            lacking = "evaluation outside the training world needs an extension that is not installed"
            refuse(not trained.OTHER_WORLDS, f"env: {', '.join(changes)} changed, and {lacking}")
            spec, new_tasks = trained.OTHER_WORLDS[-1](config, env, opened.described)
            parts = {"held_out": new_tasks}
        else:
            other = "has other spaces, rewards or episode lengths than in training"
            refuse(spec != EnvSpec.of(opened.described["env"]), f"env.name={config.env.name} {other}")
        model, start = opened.make(config, spec, device), trained.open_start(config, opened, spec, device)
        suffix = trained.suffix_of(changes | policy_suffixes(config), config.evaluation.tasks)
        # In another world a source appears only in videos, and is the configured one unless there is a mixture.
        has_source = not changes or (config.evaluation.videos and is_mixture)
        setup = Setup(config, env, opened, compared, suffix, model, start, parts)
        if has_source and not setup.is_done:
            setup = replace(setup, store=trained.training_store(config, opened.described))
        yield setup


def jobs_of(setup: Setup) -> list[Job]:
    """Jobs: the model on each part of the tasks; its probes, other policies and diagnostics on the main one."""
    options, shown = setup.config.evaluation, setup.tasks[setup.main]
    jobs = [job for diagnostic in diagnostics() for job in diagnostic.jobs(setup)]

    def play(name: str, policy: Policy[Any], tasks: Tensor, num_streams: int) -> None:
        jobs.extend(jobs_playing(name, policy, setup.env, tasks, num_streams, options.num_episodes, setup.config.seed))

    for name, probe in reversed(setup.probes.items()):
        play(name, probe, shown, options.num_probe_streams)
    for part, tasks in setup.tasks.items():  # after probes, because those take longest
        play(part, setup.policy, tasks, options.num_streams if part == setup.main else options.num_probe_streams)
    for name, learner in setup.learners.items():
        play(name, learner, shown, options.num_streams)
    return jobs


class Played(NamedTuple):
    """Results of the jobs of an evaluation."""

    episodes: Episodes  # by policy; those of the source agents and of diagnostics too
    filmed: dict[str, Rollout]  # transitions of the models
    arrays: Arrays  # of diagnostics


def played_in(setup: Setup, results: Sequence[tuple[str, Any]]) -> Played:
    """Episodes, transitions and arrays of the `results` of the jobs, by name."""
    parts = dict[str, list[Any]]()
    for name, result in results:
        parts.setdefault(name, []).append(result)
    played = {name: joined(of_one) for name, of_one in parts.items() if OF_DIAGNOSTIC not in name}
    episodes = {part: played[part][0] for part in setup.tasks}
    if setup.store and "train" in setup.tasks:
        episodes |= _source_episodes(setup, setup.store)
    episodes |= {name: played[name][0] for name in (*setup.learners, *setup.probes)}
    models = {"model": setup.main} | ({protocol.BEFORE: protocol.BEFORE} if setup.start else {})
    filmed, arrays = {name: played[part][1] for name, part in models.items()}, Arrays()
    for diagnostic in diagnostics():
        prefix = diagnostic.name + OF_DIAGNOSTIC
        own = {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}
        further, by_kind = diagnostic.outcome(setup, played, own)
        episodes |= further
        arrays |= by_kind
    return Played(episodes, filmed, arrays)


def _source_episodes(setup: Setup, store: Histories) -> Episodes:
    """First and last episodes of the source agents of training tasks in `store`."""
    source, options = store.manifest["config"]["source"]["name"], setup.config.evaluation
    label = f"{report.source_label(source)}, training tasks"
    ends = source_adaptation(store, setup.parts["train"], options.num_probe_streams, options.num_episodes)
    return {f"{label}, start of life": ends[0], f"{label}, end of life": ends[1]}


def setting_of(setup: Setup) -> protocol.Setting:
    """Setting of an evaluation. In rooms with one start nothing is drawn, so no episode is better than the optimum."""
    env, rewards, num_steps = setup.env, setup.env.spec.reward_values, setup.env.spec.max_episode_steps
    computed = references.is_computed(env)
    possible = {"steps_to_goal": (1.0, float(num_steps))}
    possible |= {"returns": (min(0.0, *rewards) * num_steps, max(0.0, *rewards) * num_steps)} if rewards else {}
    return protocol.Setting(
        {part: references.exact_references(env, tasks) for part, tasks in setup.tasks.items()},
        protocol.decoding_name(setup.policy.temperature, setup.policy.sample_probability),
        computed and env.spec.success == "best_action",
        possible,
        isinstance(env, Room) and computed and len(env.starts) == 1,
    )

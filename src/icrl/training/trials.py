"""Trials for policy gradients, played by frozen copies of the model that is trained, in batches for its updates.

Everything is a function of the seed, the iteration and the weights of the model at its start, so a resumed run plays
the trials that it was interrupted in again. G tasks, S streams of each, B = G S, T steps, R ranks, each of which plays
B / R streams and updates on as many streams of each mini-batch as the others. A trial that is longer than the context
is updated on in W windows, those that the actor's context went through.
"""

from __future__ import annotations

import math
from contextlib import closing
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from icrl.config.options import refuse, replace
from icrl.config.schedules import Clock, make_schedule
from icrl.contracts import ConfigError, Rollout
from icrl.envs import make_env
from icrl.envs.core import Family, TensorEnv, check_playable
from icrl.envs.rollout import OpenEpisodes, finished_episodes, numbered, rollout, start_streams
from icrl.envs.tasks import development_of, split_tasks
from icrl.nn.encoders import OF_ROWS, ObsEmbedding
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy, kept_of
from icrl.nn.heads import make_head
from icrl.randomness import Noise, mix, stream_seeds
from icrl.runs.device import REPEATED
from icrl.runs.distributed import Ranks
from icrl.training.optimizers import MuonConfig
from icrl.training.policy_gradient import CRITICS, NEVER, FinetuneConfig, TrialBatch, discoveries, group_advantages
from icrl.training.program import RunContext

if TYPE_CHECKING:
    from icrl.app.root import Config

_TASKS, _STARTS, _NOISE, _ORDER, _ROOMS = range(6, 11)  # purposes of random numbers
_KEPT = 0.5  # of a full context in longer trials, whatever `policy.context_kept` says


class TrialPolicy(GPTPolicy):
    """The model as a policy that keeps the log-probabilities of the actions it chose, one `[B]` for each step."""

    def __init__(self, model: GPT) -> None:
        super().__init__(model, 1.0, 1.0, _KEPT)
        self.head = model.head
        self.log_probs: list[Tensor] = []

    def choose(self, logits: Tensor, obs: Tensor, noise: Tensor) -> Tensor:
        action = super().choose(logits, obs, noise)
        parameters = self.model.spec.legal_of(logits, obs, NEVER).float()
        self.log_probs.append(self.head.log_prob(parameters, action))
        return action


class Trials:
    """Batches of the updates of `model`, from trials on `tasks` `[N, task_dim]`.

    An iteration plays trials with the weights at its start, and then passes over their streams in random order, in
    `num_mini_batches` parts. Checkpoints hold the weights of the `actor`. With a `family` trials visit its other rooms
    too. With `low_precision` the actor's keys and values are bfloat16 on a CPU. Methods are called by all `ranks`."""

    def __init__(
        self,
        config: FinetuneConfig,
        env: TensorEnv,
        tasks: Tensor,
        model: GPT,
        seed: int,
        ranks: Ranks | None = None,
        family: Family | None = None,
        low_precision: bool = False,
    ) -> None:
        if family:
            env, tasks = family, family.translated(tasks)
        self.config, self.env, self.tasks, self.seed = config, env, tasks, seed
        self.ranks, self._family = ranks or Ranks(), family
        self.metrics: dict[str, Tensor] = {}  # of the newest trials
        self._model, self.actor = model, deepcopy(model).eval().requires_grad_(False)
        self.actor.cache_dtype = torch.bfloat16 if low_precision else None
        self._num_tasks, self.num_streams = config.drawn_of(len(tasks)), config.streams_of(len(tasks))
        self._bonus = make_schedule(config.bonus)
        unsolvable = env.unsolvable(tasks) if config.num_unsolvable else None
        self._unsolvable = tasks[:0] if unsolvable is None else unsolvable
        windows = context_windows(config.trial_steps, model.config.context_len)
        self._windows, self._weight = (numbers.to(tasks.device) for numbers in windows)
        self._play = REPEATED[-1](self._played)  # the same in every iteration but for its arguments
        self._iteration, self._columns = 0, list[Tensor]()  # of the newest trials

    def clock(self) -> Clock:
        """Time of schedules at the start of the present iteration."""
        done, config = self._iteration, self.config
        steps = done * self.num_streams * config.trial_steps
        return Clock(done / config.num_iterations, done, steps, done * config.num_mini_batches)

    def batch_at(self, update: int) -> TrialBatch:
        """This rank's share of the batch of `update`, W windows of each of B / num_mini_batches / R streams. Calls must
        be in order; the first may be amid an iteration whose actor is in the loaded state. Sizes of parts differ by one
        at most and R divides B, so all shares of a batch have one size."""
        iteration, part = divmod(update, self.config.num_mini_batches)
        if iteration != self._iteration or not self._columns:
            if part == 0:
                self.actor.load_state_dict(self._model.state_dict())
            self._iteration = iteration
            self._columns = self._collect(iteration)
        order = self._drawn(self.num_streams, _ORDER, iteration)
        parts = order.tensor_split(self.config.num_mini_batches * self.ranks.size)
        chosen = parts[part * self.ranks.size + self.ranks.rank]
        columns = (column[chosen][:, self._windows].flatten(0, 1) for column in self._columns)
        return TrialBatch(*columns, weight=self._weight.repeat(len(chosen), 1))

    def tasks_of(self, iteration: int) -> Tensor:
        """Tasks `[B, task_dim]` of the streams of `iteration`, by task: of training, unsolvable ones, other rooms."""
        drawn = self._drawn(len(self.tasks), _TASKS, iteration)
        unsolvable = self._unsolvable[drawn[torch.arange(self.config.num_unsolvable) % len(drawn)]]
        rooms = self.tasks[:0]
        if self._family:
            seeds = mix(stream_seeds(self.seed, self.config.num_rooms, _ROOMS), iteration)
            rooms = self._family.draw(seeds.to(self.tasks.device))
        parts = torch.cat([self.tasks[drawn[: self._num_tasks]], unsolvable, rooms])
        return parts.repeat_interleave(self.config.num_streams, dim=0)

    def play(self, iteration: int) -> tuple[Rollout, Tensor]:
        """Transitions `[T, B / R]` of this rank's trials of `iteration` on `tasks_of` it, and the log-probabilities of
        their actions. The actor samples its actions."""
        number = self.num_streams // self.ranks.size
        own = slice(self.ranks.rank * number, (self.ranks.rank + 1) * number)
        tasks = self.tasks_of(iteration)[own]
        starts, noise = (
            mix(stream_seeds(self.seed, self.num_streams, purpose), iteration)[own].to(tasks.device)
            for purpose in (_STARTS, _NOISE)
        )
        *columns, log_prob = self._play(tasks, starts, noise)
        return Rollout(*columns), log_prob

    def _played(self, tasks: Tensor, starts: Tensor, noise: Tensor) -> list[Tensor]:
        """Columns of the transitions of trials with these seeds, and the log-probabilities."""
        policy = TrialPolicy(self.actor)
        streams = start_streams(policy, self.env, tasks, starts)
        played, _ = rollout(policy, self.env, streams, self.config.trial_steps, Noise(noise))
        return [*played, torch.stack(policy.log_probs)]

    def _drawn(self, number: int, purpose: int, time: int) -> Tensor:
        """Random order of `number` things, a function of the seed, the purpose and the time."""
        return mix(stream_seeds(self.seed, number, purpose), time).argsort().to(self.tasks.device)

    def _collect(self, iteration: int) -> list[Tensor]:
        """Columns `[B, T, ...]` of a `TrialBatch`, without the weight, of all streams of `iteration`."""
        config, spec = self.config, self.env.spec
        played, log_prob = self.play(iteration)
        played = played.each(lambda column: self.ranks.concatenated(column, 1))
        log_prob = self.ranks.concatenated(log_prob, 1)
        bonus = self._bonus(self.clock())
        new = discoveries(spec, played).float() if bonus else torch.zeros_like(played.reward)
        _, group = self.tasks_of(iteration).unique(dim=0, return_inverse=True)
        group *= config.num_streams > 1  # with one of each task, all streams are one group
        advantage = group_advantages(played.reward + bonus * new, group, config.discount)
        columns = (played.obs, played.action, played.reward, played.timestep, advantage, log_prob)
        self.metrics = self._progress(played, new)
        return [column.transpose(0, 1) for column in columns]

    def _progress(self, played: Rollout, new: Tensor) -> dict[str, Tensor]:
        """Return and rewarded discoveries of a trial, success of its first episode and of the last that all finish."""
        kept = self._num_tasks * self.config.num_streams
        solvable = played.each(lambda column: column[:, :kept])
        episodes, _ = finished_episodes(solvable, OpenEpisodes.none(kept), self.env.spec)
        number, last = numbered(episodes.stream), self.config.trial_steps // self.env.spec.max_episode_steps - 1
        metrics = {"return": solvable.reward.sum(0).mean(), "discoveries": new[:, :kept].sum(0).mean()}
        for name, episode in {"first_success": 0, "last_success": last}.items() if last >= 0 else ():
            metrics[name] = torch.tensor(episodes.success[number == episode].mean(), device=new.device)
        return metrics


def context_windows(steps: int, length: int) -> tuple[Tensor, Tensor]:
    """Steps `[W, C]` of the windows that a context of `length` >= C steps goes through in a trial of `steps`, and their
    weights, 0 where an earlier window had the step or the trial is over, which repeats its last step."""
    length, kept = min(steps, length), kept_of(length, _KEPT)
    number = 1 + math.ceil((steps - length) / (length - kept)) if steps > length else 1
    begin, within = torch.arange(number)[:, None] * (length - kept), torch.arange(length)
    new = ((begin + within < steps) & ((begin == 0) | (within >= kept))).float()
    return (begin + within).clamp(max=steps - 1), new / new.mean()


def check_trials(config: Config, records: bool = False) -> None:
    """Raise `ConfigError` for options of trials that the world or the model does not allow; needs no histories. Those
    that a command `records` itself have the split of its options, so their number of streams is known."""
    check_playable(config.env)
    options, model = config.finetune, config.model
    short = options.start == "none" and options.trial_steps < model.context_len and model.position == "learned"
    untrained = f"leaves positions untrained with model.position=learned and model.context_len={model.context_len}"
    refuse(short, f"finetune.trial_steps={options.trial_steps} {untrained}: give as many, or model.position=env_time")
    with closing(make_env(config.env)) as env:
        many = "an observation of this world is a vector of real numbers, which hardly ever recurs"
        real = options.bonus and env.spec.obs_dtype == torch.float32
        refuse(real, f"finetune.bonus={options.bonus}: {many}; give finetune.bonus=0")
        own = f"model.head={model.head} has a model of its own, but trials train the plain one: give auto"
        refuse(make_head(model, env.spec).model, own)
        none = f"finetune.num_unsolvable={options.num_unsolvable}: env.name={config.env.name} has no such tasks; give 0"
        refuse(options.num_unsolvable and env.unsolvable(env.all_tasks()[:0]) is None, none)
        if options.num_rooms:
            _check_rooms(config, env)
        if records:
            train = split_tasks(env, config).train
            check_streams(options, len(train) - len(development_of(env, config, train)))
    lacking = f"finetune.gae_lambda={options.gae_lambda} needs an extension that is not installed; give null"
    refuse(options.gae_lambda is not None and not CRITICS, lacking)


def _check_rooms(config: Config, env: TensorEnv) -> None:
    options, model = config.finetune, config.model
    given, encoding = f"finetune.num_rooms={options.num_rooms}", model.obs_encoding
    sizes = f"finetune.room_sizes={options.room_sizes}: must be at most model.max_size={model.max_size}"
    refuse(options.room_sizes[1] > model.max_size, sizes)
    read = f"needs model.obs_encoding={', '.join(OF_ROWS[:-1])} or {OF_ROWS[-1]}, not {encoding}"
    refuse(encoding not in OF_ROWS, f"{given} {read}: give one, or finetune.num_rooms=0")
    none = f"{given}: env.name={config.env.name} has no other rooms with these options; give finetune.num_rooms=0"
    if not (family := rooms_beside(config, env, env.all_tasks()[:0])):
        raise ConfigError(none)
    outputs = {make_head(model, spec).num_parameters for spec in (env.spec, family.spec)}
    refuse(len(outputs) > 1, f"{given}: model.head={model.head} fits one size of room; give finetune.num_rooms=0")


def rooms_beside(config: Config, env: TensorEnv, hidden: Tensor) -> Family | None:
    """Family of rooms that trials visit beside `env`, without the goals of the tasks `hidden` `[N, task_dim]`; None
    without `finetune.num_rooms`, or in a world without a map."""
    options, model = config.finetune, config.model
    if not options.num_rooms or not env.spec.width:
        return None
    corner = ObsEmbedding(model, env.spec).slack // 2
    least, most = options.room_sizes
    return env.family(model.max_size, corner, (least, most), hidden)


def check_streams(options: FinetuneConfig, num_tasks: int, ranks: int = 1) -> int:
    """Streams of an iteration on `num_tasks` training tasks. Raises `ConfigError` if it is one, too few
    for the mini-batches, or cannot be shared by so many `ranks`."""
    number, parts = options.streams_of(num_tasks), options.num_mini_batches
    refuse(number < 2, "finetune.num_streams=1: a single stream has none to be compared with; give 2 or more")
    played = f"each of {ranks} processes plays an equal share of the {number} streams of all tasks"
    refuse(number % ranks, f"finetune.num_streams={options.num_streams}: {played}; give a multiple of {ranks}")
    most, why = number // ranks, f": {played}" if ranks > 1 else ", the streams of all tasks"
    refuse(parts > most, f"finetune.num_mini_batches={parts}: must be at most {most}{why}")
    return number


def trial_context(context: RunContext, num_tasks: int) -> RunContext:
    """Context with the optimizer and batches of trials on `num_tasks` training tasks; raises as `check_streams`."""
    config, options = context.config, context.config.finetune
    num_streams = check_streams(options, num_tasks, context.ranks.size)
    windows, _ = context_windows(options.trial_steps, config.model.context_len)
    size = -(-num_streams // options.num_mini_batches) * len(windows)
    batches = {"mini_batch_size": size, "mini_batch_length": windows.shape[1]}
    changed = replace(
        config,
        optimizer=MuonConfig(weight_decay=0.0, learning_rate=options.learning_rate),
        # Blocks are recomputed only in training mode, which would also turn dropout on.
        trainer=replace(config.trainer, activation_checkpointing=False, **batches),
    )
    return context._replace(config=changed)

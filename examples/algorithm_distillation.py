"""Algorithm distillation (Laskin et al., 2022, arXiv 2210.14215) in one file, to be read from top to bottom.

    python examples/algorithm_distillation.py

Agents learn many tasks with a source algorithm, here A2C, and their whole learning histories are recorded. A causal
transformer is trained to predict the agents' next action from all that precedes it in a window of such a history, over
the ends of episodes:

    loss = - mean over windows b and steps t of  log pi(a_t | window up to t, o_t)

To predict well it has to see in the window how far the agent has come, and what a slightly better agent does next. Then
its weights are frozen. On tasks that no agent was trained on it gets better from episode to episode, by what it reads.

    1 room          dark room with a hidden goal; a task is a goal, and some goals are held out
    2 source        one A2C agent for each training goal              -> learning histories
    3 windows       parts of histories that span many episodes        -> batches
    4 model         causal transformer with a key-value cache
    5 training      weighted cross-entropy of the agents' actions     -> frozen weights
    6 evaluation    40 episodes in one context on held-out goals      -> table and picture

Two parts are not in the plain method. Comments that begin with "Beyond the plain method" mark them. Success on held-out
goals in episodes 31 to 40, with seeds 11 and 13: 0.96 and 0.96 with both, 0.93 and 0.92 if no episodes are left out of
windows, 0.74 and 0.66 with equal weights in the loss, and with neither 0.43 (seed 11).

Shapes: L agents, E environments of an agent, N = L * E rows of the histories, S cells, A actions, T steps, B windows or
streams, D width, H heads.
"""

import argparse
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from tqdm import trange


@dataclass(frozen=True)
class Config:
    """Settings of all parts."""

    seed: int = 0  # seed of the split into training and held-out goals, and of everything else that is random
    size: int = 9  # side of the room in cells
    num_envs: int = 10  # environments of an agent, which it plays in parallel
    life: int = 3000  # env steps that are recorded in each environment
    unroll: int = 10  # env steps between two updates of an agent
    discount: float = 0.99
    entropy_coefficient: float = 0.01
    source_learning_rate: float = 0.03  # of Adam
    window: int = 160  # env steps of a window
    skips: tuple[int, ...] = (1, 4, 16)  # every k-th episode of a history is kept, with k drawn from these
    weight_discount: float = 0.9  # discount of the return-to-go that weights a step
    max_weight: float = 20.0
    width: int = 64
    num_layers: int = 2
    num_heads: int = 2
    num_updates: int = 800
    batch: int = 16  # windows of an update
    learning_rate: float = 4e-3  # largest one
    num_episodes: int = 40
    num_streams: int = 10  # independent streams of each goal

    @property
    def horizon(self) -> int:
        """Steps of an episode in which the goal is not found: 20 in a room of 9 x 9 cells."""
        return 2 * self.size + 2

    @property
    def start(self) -> int:
        """Cell in the middle, where episodes start."""
        return (self.size + 1) * (self.size // 2)


QUICK = Config(size=5, life=2000, window=60, width=48, num_updates=300, num_streams=5)


# 1 Room ---------------------------------------------------------------------------------------------------------------

MOVES = torch.tensor([[0, 0], [-1, 0], [0, 1], [1, 0], [0, -1]])  # row and column: stay, up, right, down, left
NUM_ACTIONS = len(MOVES)


class Step(NamedTuple):
    """Outcome of an action in each room; all tensors have the shape of the goals."""

    reward: Tensor  # 1 if the action led to the goal, else 0
    terminated: Tensor  # bool: the goal was reached
    truncated: Tensor  # bool: the time ran out
    final_obs: Tensor  # cell that the action led to, before any reset


class DarkRoom:
    """Square rooms, one for each entry of `goals` (of any shape). The agent sees its cell, row * size + column, and
    never the goal. An episode starts in the centre and ends at the goal or after `horizon` steps. Then the next
    episode begins at once, with the same goal."""

    def __init__(self, goals: Tensor, config: Config) -> None:
        self.goals, self.size, self.horizon = goals, config.size, config.horizon
        self.start = torch.full_like(goals, config.start)
        self.obs, self.timestep = self.start, torch.zeros_like(goals)

    def step(self, action: Tensor) -> Step:
        row = (self.obs // self.size + MOVES[action, 0]).clamp(0, self.size - 1)
        column = (self.obs % self.size + MOVES[action, 1]).clamp(0, self.size - 1)
        final_obs, timestep = row * self.size + column, self.timestep + 1
        terminated, truncated = final_obs == self.goals, timestep >= self.horizon
        ended = terminated | truncated
        self.obs, self.timestep = torch.where(ended, self.start, final_obs), timestep.masked_fill(ended, 0)
        return Step(terminated.float(), terminated, truncated, final_obs)


def split_goals(config: Config) -> tuple[Tensor, Tensor]:
    """Training and held-out goals in random order: 57 and 23 of the 80 cells that are not the start if size is 9."""
    goals = torch.tensor([cell for cell in range(config.size**2) if cell != config.start])
    goals = goals[torch.randperm(len(goals), generator=torch.Generator().manual_seed(config.seed))]
    num_train = round(len(goals) * 57 / 80)
    return goals[:num_train], goals[num_train:]


# 2 Source: advantage actor-critic (A2C; Mnih et al., 2016) ------------------------------------------------------------


class Agents(nn.Module):
    """L independent actor-critics as tables with a leading learner axis."""

    def __init__(self, num_agents: int, num_cells: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(num_agents, num_cells, NUM_ACTIONS))  # [L, S, A]
        self.values = nn.Parameter(torch.zeros(num_agents, num_cells))  # [L, S]
        self.agent = torch.arange(num_agents)[:, None]  # beside an index [..., L, E], it chooses each agent's own table

    def act(self, obs: Tensor) -> Tensor:
        """Actions `[L, E]`, drawn from the policies in the cells `obs` `[L, E]`."""
        return sample(self.logits.detach()[self.agent, obs])

    def value(self, obs: Tensor) -> Tensor:
        """Values of the cells `obs`, `[T, L, E]`."""
        return self.values[self.agent, obs]

    def loss(self, obs: Tensor, action: Tensor, returns: Tensor, entropy_coefficient: float) -> Tensor:
        """Loss of A2C. All tensors are `[T, L, E]`. The loss of one agent is the mean over its T * E steps of

            - log pi(a|s) * (R - V(s)) + (R - V(s))^2 - entropy_coefficient * H(pi(.|s))

        without a gradient through the advantage R - V(s). The losses are summed over agents, so the gradient of each
        agent is the same as if it were alone."""
        log_policy = self.logits[self.agent, obs].log_softmax(-1)  # [T, L, E, A]
        log_prob = log_policy.gather(-1, action[..., None])[..., 0]
        entropy = -(log_policy.exp() * log_policy).sum(-1)
        error = returns - self.value(obs)
        loss = -log_prob * error.detach() + error.square() - entropy_coefficient * entropy
        return loss.mean(dim=(0, 2)).sum()


def n_step_returns(step: Step, next_value: Tensor, discount: float) -> Tensor:
    """Longest n-step returns that an unroll allows, `[T, ...]` as all arguments:

        R_t = r_t + discount * (0 if the goal was reached; V(next_t) if the time ran out or t is last; else R_{t+1})

    `next_value` = V of the cell that the action led to, before any reset."""
    returns, later = torch.empty_like(next_value), next_value[-1]
    for t in reversed(range(len(returns))):
        later = torch.where(step.truncated[t], next_value[t], later).masked_fill(step.terminated[t], 0)
        returns[t] = later = step.reward[t] + discount * later
    return returns


class Histories(NamedTuple):
    """Whole lives of the agents, `[N, T]` int16 each. A row is one environment of an agent from its first step on."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    timestep: Tensor  # steps since the reset; an episode starts where it is 0


def train_source(goals: Tensor, config: Config) -> Histories:
    """Train one agent on each of the `goals` `[L]`, all at once, and record every step of their lives."""
    room = DarkRoom(goals[:, None].repeat(1, config.num_envs), config)  # [L, E]
    agents = Agents(len(goals), config.size**2)
    optimizer = torch.optim.Adam(agents.parameters(), config.source_learning_rate)
    recorded = torch.empty(config.life, 4, *room.goals.shape, dtype=torch.int16)
    for start in trange(0, config.life, config.unroll, desc="source agents"):
        unroll = []
        for t in range(start, start + config.unroll):
            obs, timestep, action = room.obs, room.timestep, agents.act(room.obs)
            step = room.step(action)
            recorded[t] = torch.stack([obs, action, step.reward.long(), timestep])
            unroll.append((obs, action, *step))
        obs, action, *columns = map(torch.stack, zip(*unroll, strict=True))  # [T, L, E]
        steps = Step(*columns)
        returns = n_step_returns(steps, agents.value(steps.final_obs).detach(), config.discount)
        optimizer.zero_grad()
        agents.loss(obs, action, returns, config.entropy_coefficient).backward()
        optimizer.step()
    return Histories(*recorded.flatten(2).permute(1, 2, 0).contiguous())


# 3 Windows ------------------------------------------------------------------------------------------------------------

NO_ACTION, NO_REWARD = NUM_ACTIONS, 2  # of the first step of a context, before which nothing happened


class Context(NamedTuple):
    """What the model reads at each step, `[B, T]` int64 each: the present cell, and the transition that led to it."""

    obs: Tensor
    timestep: Tensor
    prev_obs: Tensor
    prev_action: Tensor
    prev_reward: Tensor


def context_of(obs: Tensor, action: Tensor, reward: Tensor, timestep: Tensor) -> Context:
    """Context of windows `[B, T]`. Actions and rewards are shifted by one step, so step t does not show a_t and r_t."""
    prev_obs = torch.cat([obs[:, :1], obs[:, :-1]], dim=1)
    prev_action = F.pad(action[:, :-1], (1, 0), value=NO_ACTION)
    prev_reward = F.pad(reward[:, :-1], (1, 0), value=NO_REWARD)
    return Context(obs, timestep, prev_obs, prev_action, prev_reward)


def improvement_weights(histories: Histories, config: Config) -> Tensor:
    """Weights of the steps in the loss, `[N, T]`: the return-to-go relative to that of all rows at the same age,

        w_t = min(G_t / mean of G at that age, max_weight),    G_t = sum over k of weight_discount^k r_{t+k}

    where the sum ends with the episode. An age is a stretch of `horizon` steps."""
    reward, starts = histories.reward.T.float(), histories.timestep.T == 0  # [T, N]
    weights, later = torch.empty_like(reward), torch.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        weights[t] = later = reward[t] + config.weight_discount * later
        later = later.masked_fill(starts[t], 0)  # what follows an episode does not count for the one before it
    for age in weights.split(config.horizon):
        age.div_(age.mean().clamp(min=1e-6))  # in place: an age is a view of the weights
    return weights.clamp(max=config.max_weight).T.contiguous()


class Windows:
    """Random windows of histories. A window never leaves its row, so it shows one goal alone."""

    def __init__(self, histories: Histories, config: Config) -> None:
        self.histories, self.config = histories, config
        self.episode = (histories.timestep == 0).cumsum(dim=1, dtype=torch.int32)  # [N, T], counted from 1
        # Beyond the plain method: steps are weighted, so that the model imitates what agents did before they were more
        # successful than others of their age. Failed episodes have weight 0: the model sees them, but does not imitate.
        self.weights = improvement_weights(histories, config)

    def batch(self) -> tuple[Context, Tensor, Tensor]:
        """Random windows: their context, the actions to predict, and the weights in the loss, `[B, T]` each."""
        rows, steps = list[int](), list[Tensor]()
        while len(rows) < self.config.batch:
            # Beyond the plain method: only every k-th episode is kept, for several k. An agent hardly improves within
            # 160 steps. With k = 16 a window shows almost its whole life, and with k = 1 a search that fails for long.
            row, k = random.randrange(len(self.episode)), random.choice(self.config.skips)
            kept = (self.episode[row] % k == random.randrange(k)).nonzero()[:, 0]
            if len(kept) >= self.config.window:
                first = random.randrange(len(kept) - self.config.window + 1)
                rows.append(row)
                steps.append(kept[first : first + self.config.window])
        index = torch.tensor(rows)[:, None], torch.stack(steps)
        columns = Histories(*(column[index].long() for column in self.histories))
        return context_of(*columns), columns.action, self.weights[index]


# 4 Model --------------------------------------------------------------------------------------------------------------


class Cache:
    """Keys and values of the steps that were read, for each layer `[B, H, capacity, D / H]`, of which the first
    `length` are filled. With it a new step costs one query in place of a forward over the whole context."""

    def __init__(self, num_streams: int, capacity: int, config: Config) -> None:
        shape = (config.num_layers, num_streams, config.num_heads, capacity, config.width // config.num_heads)
        self.keys, self.values, self.length = torch.empty(shape), torch.empty(shape), 0

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add new steps `[B, H, T, D / H]` to one layer and return all steps so far."""
        end = self.length + key.shape[2]
        for column, new in ((self.keys, key), (self.values, value)):
            column[layer, :, :, self.length : end] = new
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each behind a layer norm and added to its input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, self.num_heads = config.width, config.num_heads
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        hidden = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.feed_forward = nn.Sequential(nn.LayerNorm(width), *hidden)

    def forward(self, x: Tensor, cache: Cache | None, layer: int) -> Tensor:
        """`[B, T, D] -> [B, T, D]`. A head adds up v_u over steps u <= t by softmax_u(q_t . k_u / sqrt(D / H))."""
        normed, heads = self.norm(x), (self.num_heads, -1)
        parts = (linear(normed).unflatten(-1, heads).transpose(1, 2) for linear in (self.query, self.key, self.value))
        query, key, value = parts  # [B, H, T, D / H]
        before = cache.length if cache else 0
        if cache:
            key, value = cache.append(layer, key, value)  # [B, H, before + T, D / H]
        scores = query @ key.mT / math.sqrt(key.shape[-1])  # [B, H, T, before + T]
        future = torch.full(scores.shape[-2:], -torch.inf).triu(before + 1)
        mixed = (scores + future).softmax(-1) @ value
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed_forward(x)


class Model(nn.Module):
    """In-context policy. A step is one token, the sum of the embeddings of its parts.

    The only position code is the time step in the episode. So the model knows how much time is left and where episodes
    begin, and its context may be longer than the windows of its training."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.size = config.size
        # Cells are embedded as row plus column, because what is learned of one cell then helps in others.
        sizes = (*4 * (config.size,), config.horizon, NUM_ACTIONS + 1, 3)
        self.tables = nn.ModuleList(nn.Embedding(size, config.width) for size in sizes)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, NUM_ACTIONS)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, context: Context, cache: Cache | None = None) -> Tensor:
        """Logits `[B, T, A]` of the action at each step. With a cache the T steps continue those that it holds."""
        obs, timestep, prev_obs, prev_action, prev_reward = context
        cells = obs // self.size, obs % self.size, prev_obs // self.size, prev_obs % self.size
        parts = *cells, timestep, prev_action, prev_reward
        x = torch.stack([table(part) for table, part in zip(self.tables, parts, strict=True)]).sum(0)  # [B, T, D]
        for layer, block in enumerate(self.blocks):
            x = block(x, cache, layer)
        if cache:
            cache.length += x.shape[1]
        return self.head(self.norm(x))


# 5 Training -----------------------------------------------------------------------------------------------------------


def train_model(windows: Windows, config: Config) -> Model:
    """Distil the histories into a model."""
    model = Model(config)
    # Muon (Jordan et al., 2024) needs fewer updates than Adam, but it is for matrices of hidden layers alone.
    matrices = [weight for weight in model.blocks.parameters() if weight.ndim == 2]
    others = [weight for weight in model.parameters() if all(weight is not matrix for matrix in matrices)]
    muon = torch.optim.Muon(matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")  # steps as large as Adam's
    optimizers = (muon, torch.optim.Adam(others, betas=(0.9, 0.99)))
    progress = trange(1, config.num_updates + 1, desc="transformer  ")
    for update in progress:
        done = update / config.num_updates
        rate = config.learning_rate * min(1, done / 0.03) * (1 + math.cos(math.pi * done)) / 2  # warm-up, half a cosine
        context, action, weight = windows.batch()
        losses = F.cross_entropy(model(context).flatten(0, 1), action.flatten(), reduction="none")
        loss = (weight.flatten() * losses).mean()
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
        progress.set_postfix(loss=f"{loss.item():.2f}")
    return model.eval()


# 6 Evaluation ---------------------------------------------------------------------------------------------------------


def sample(logits: Tensor) -> Tensor:
    """Actions `[...]` drawn from the policies with the logits `[..., A]`."""
    return torch.multinomial(logits.softmax(-1).flatten(0, -2), 1).view(logits.shape[:-1])


def in_context(model: Model, num_streams: int, num_episodes: int, config: Config) -> Callable[[Context], Tensor]:
    """Policy of the frozen model. Its cache holds all steps of all episodes, so nothing is forgotten."""
    cache = Cache(num_streams, num_episodes * config.horizon, config)
    return lambda newest: sample(model(newest, cache)[:, -1])


@torch.no_grad()
def play(policy: Callable[[Context], Tensor], goals: Tensor, num_episodes: int, config: Config) -> Tensor:
    """Play episodes on the goals `[B]`, one stream each, with a policy from newest steps `[B, 1]` to actions `[B]`.
    Returns the steps to the goal `[B, episodes]`, and `horizon` + 1 where it was not found."""
    room, stream, episode = DarkRoom(goals, config), torch.arange(len(goals)), torch.zeros_like(goals)
    steps = torch.empty(len(goals), num_episodes + 1, dtype=torch.long)  # streams that are done write to the last one
    prev = room.obs, torch.full_like(goals, NO_ACTION), torch.full_like(goals, NO_REWARD)
    while (episode < num_episodes).any():  # streams end their episodes at different times
        obs, timestep = room.obs, room.timestep
        action = policy(Context(*(column[:, None] for column in (obs, timestep, *prev))))
        step = room.step(action)
        steps[stream, episode] = torch.where(step.terminated, timestep + 1, config.horizon + 1)
        episode = (episode + (step.terminated | step.truncated)).clamp(max=num_episodes)
        prev = obs, action, step.reward.long()
    return steps[:, :num_episodes]


def source_steps(histories: Histories, config: Config) -> Tensor:
    """Steps to the goal in the agents' episodes, `[N, episodes]`, as of `play`: as many episodes as all rows have."""
    episode = (histories.timestep == 0).cumsum(dim=1) - 1  # [N, T]
    steps = torch.full((len(episode), config.life), config.horizon + 1)
    row, t = histories.reward.nonzero(as_tuple=True)
    steps[row, episode[row, t]] = histories.timestep[row, t].long() + 1
    return steps[:, : config.life // config.horizon]


MODEL, WIPED, SOURCE = "frozen model, held-out goals", "its context wiped at each reset", "A2C agents, training goals"
RANDOM, OPTIMUM = "random policy, held-out goals", "optimum, held-out goals"
COLORS = {MODEL: "#D55E00", WIPED: "#CC79A7", SOURCE: "#0072B2", RANDOM: "#777777", OPTIMUM: "#000000"}


def evaluate(model: Model, held_out: Tensor, histories: Histories, config: Config) -> dict[str, Tensor]:
    """Steps to the goal of the model and of references by name, `[streams, episodes]` each, as of `play`."""
    goals, episodes = held_out.repeat_interleave(config.num_streams), config.num_episodes
    # With a wiped context every episode is a first one, so wiped episodes are the first episodes of many streams.
    first = goals.repeat_interleave(episodes)
    wiped = play(in_context(model, len(first), 1, config), first, 1, config).view(-1, episodes)
    row, column, middle = goals // config.size, goals % config.size, config.size // 2
    shortest = (row - middle).abs() + (column - middle).abs()
    return {
        MODEL: play(in_context(model, len(goals), episodes, config), goals, episodes, config),
        WIPED: wiped,
        SOURCE: source_steps(histories, config),
        RANDOM: play(lambda newest: torch.randint_like(goals, NUM_ACTIONS), goals, episodes, config),
        OPTIMUM: shortest[:, None].expand(-1, episodes),
    }


def report(results: dict[str, Tensor], num_goals: int, config: Config) -> str:
    """Table of success and steps, and the result in one sentence."""
    late = slice(config.num_episodes * 3 // 4, config.num_episodes)
    span, shown = f"{late.start + 1}-{late.stop}", dict[str, list[float]]()
    lines = [f"{'success at episode':<34}{1:>7}{5:>7}{20:>7}{span:>7}  steps to goal {span}"]
    for name, steps in results.items():
        success = (steps <= config.horizon).float().mean(0)
        moves = float(steps[:, late].clamp(max=config.horizon).float().mean())
        shown[name] = [float(part.mean()) for part in (success[0], success[4], success[19], success[late])]
        lines.append(f"{name:<34}" + "".join(f"{number:7.3f}" for number in shown[name]) + f"{moves:21.2f}")
    sentence = (
        f"On {num_goals} held-out goals the frozen model succeeds in {shown[MODEL][0]:.0%} of first episodes and in "
        f"{shown[MODEL][3]:.0%} of episodes {span} (wiped {shown[WIPED][3]:.0%}, random {shown[RANDOM][3]:.0%})."
    )
    return "\n".join([*lines, "", sentence])


def plot(path: Path, results: dict[str, Tensor], num_goals: int, config: Config) -> None:
    """Adaptation plot: success by episode. The band is a 95 % interval of the model's success over held-out goals."""
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    for name, steps in results.items():
        success = (steps <= config.horizon).float()
        curve, episodes = success.mean(0), torch.arange(1, steps.shape[1] + 1)
        axes.plot(episodes, curve, color=COLORS[name], label=name)
        if name == MODEL:
            of_goals = success.view(num_goals, -1, len(episodes)).mean(1)
            error = 1.96 * of_goals.std(0) / math.sqrt(num_goals)
            axes.fill_between(episodes, curve - error, curve + error, color=COLORS[name], alpha=0.2, linewidth=0)
    axes.set(xlabel=f"episode (A2C: {config.num_envs} at a time)", ylabel="success", ylim=(0, 1.03))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=100)


def run(config: Config, path: Path) -> dict[str, Tensor]:
    """All parts, one after the other. Writes the picture and returns the results of `evaluate`."""
    torch.manual_seed(config.seed)
    random.seed(config.seed)
    train_goals, held_out = split_goals(config)
    histories = train_source(train_goals, config)
    model = train_model(Windows(histories, config), config)
    results = evaluate(model, held_out, histories, config)
    plot(path, results, len(held_out), config)
    print(report(results, len(held_out), config), path, sep="\n")
    return results


def main() -> dict[str, Tensor]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=Config.seed, help="seed of the split of goals and of the run")
    sizes = {"type": int, "choices": range(3, 18), "metavar": "CELLS"}
    parser.add_argument("--size", **sizes, help=f"side of the room (default {Config.size}, with --quick {QUICK.size})")
    parser.add_argument("--out", type=Path, default=Path("algorithm_distillation.png"), help="picture to write")
    parser.add_argument("--quick", action="store_true", help="smaller room and less training, for tests")
    given = parser.parse_args()
    torch.set_num_threads(1)  # beside other work, more threads slow such small operations down
    config = replace(QUICK if given.quick else Config(), seed=given.seed)
    return run(replace(config, size=given.size) if given.size else config, given.out)


if __name__ == "__main__":
    main()

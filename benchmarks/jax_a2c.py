"""A2C on DarkRoom in JAX, a peer of stage one: one compiled program for many updates of all agents.

L agents, N environments of each, T steps of an unroll, S cells, A actions. Losses, optimizer, clipping and episode
rules are those of `icrl.sources.a2c`, `icrl.nn.networks` and `icrl.envs.rooms`. The program too computes the table of
all observations once per update. Functions are written for one agent and mapped over all.
"""

from typing import Any, NamedTuple

import jax  # type: ignore  # needs benchmarks/requirements.txt
import jax.numpy as jnp  # type: ignore  # needs benchmarks/requirements.txt
from jax import Array  # type: ignore  # needs benchmarks/requirements.txt

from icrl.envs.rooms import DOWN, LEFT, NUM_ACTIONS, RIGHT, STAY, UP, DarkRoom, next_cells
from icrl.nn.networks import ADAM_BETAS, ADAM_EPS
from icrl.sources.a2c import A2CConfig

Parameters = dict[str, Array]
Metrics = tuple[Array, ...]


class Agents(NamedTuple):
    """All agents between two updates, with their environments; each array has a leading axis of agents."""

    parameters: Parameters
    mean: Parameters  # Adam's averages
    square: Parameters
    cell: Array  # [L, N]
    timestep: Array  # [L, N]


class Transitions(NamedTuple):
    """Columns of `icrl.contracts.Rollout`, `[updates, L, T, N]` uint8."""

    obs: Array
    action: Array
    reward: Array
    next_obs: Array
    timestep: Array
    terminated: Array
    truncated: Array
    optimal_action: Array


def new_agents(options: A2CConfig, env: DarkRoom, num_agents: int, key: Array) -> Agents:
    """Untrained agents in the centre of the room."""
    size, first, second = options.hidden_size, *jax.random.split(key)
    bound, outputs = size**-0.5, env.spec.num_actions + 1  # the actor's logits, then the critic's value
    parameters = {
        "embedding": jax.random.normal(first, (num_agents, env.num_cells, size)),
        "heads": jax.random.uniform(second, (num_agents, size, outputs), minval=-bound, maxval=bound),
        "bias": jnp.zeros((num_agents, 1, outputs)),
    }
    mean, square = (jax.tree.map(jnp.zeros_like, parameters) for _ in range(2))
    cell = jnp.full((num_agents, options.num_envs), int(env.starts[0]))
    return Agents(parameters, mean, square, cell, jnp.zeros_like(cell))


def table(parameters: Parameters) -> Array:
    """Logits and value of one agent for all observations, `[S, A + 1]`."""
    return parameters["embedding"] @ parameters["heads"] + parameters["bias"]


def best_action(cell: Array, goal: Array, size: int) -> Array:
    """First action of a shortest path, as `icrl.envs.rooms.first_move`."""
    rows, columns = goal // size - cell // size, goal % size - cell % size
    across = jnp.where(columns < 0, LEFT, jnp.where(columns > 0, RIGHT, STAY))
    return jnp.where(rows == 0, across, jnp.where(rows < 0, UP, DOWN))


def make_program(options: A2CConfig, env: DarkRoom, num_updates: int) -> jax.stages.Wrapped:
    """Jitted function from (agents, goals `[L]`, key, number of earlier updates) to (agents, transitions, metrics)."""
    next_cell, limit, start = jnp.asarray(next_cells(env.size).numpy()), env.spec.max_episode_steps, int(env.starts[0])
    (beta1, beta2), discount = ADAM_BETAS, options.discount
    num_steps = int(options.unroll_length)

    def play(outputs: Array, cell: Array, timestep: Array, goal: Array, noise: Array) -> tuple[Any, Transitions]:
        steps_up = jnp.cumsum(jax.nn.softmax(outputs[:, :-1]), -1)[:, :-1]  # [S, A - 1]

        def step(streams: tuple[Array, Array], noise: Array) -> tuple[tuple[Array, Array], Transitions]:
            cell, timestep = streams  # [N]
            action = (steps_up[cell] <= noise[:, None]).sum(-1)
            reached = next_cell[cell * NUM_ACTIONS + action]
            won, late = reached == goal, timestep + 1 >= limit
            columns = (cell, action, won, reached, timestep, won, late, best_action(cell, goal, env.size))
            streams = jnp.where(won | late, start, reached), jnp.where(won | late, 0, timestep + 1)
            return streams, Transitions(*(column.astype(jnp.uint8) for column in columns))

        return jax.lax.scan(step, (cell, timestep), noise)

    def loss(outputs: Array, played: Transitions) -> tuple[Array, Metrics]:
        def back(later: Array, step: tuple[Array, ...]) -> tuple[Array, Array]:
            reward, terminated, truncated, next_value = step
            later = reward + discount * jnp.where(terminated, 0.0, jnp.where(truncated, next_value, later))
            return later, later

        next_value = jax.lax.stop_gradient(outputs[:, -1])[played.next_obs]  # [T, N]
        ends = played.terminated == 1, played.truncated == 1
        columns = (played.reward.astype(jnp.float32), *ends, next_value)
        _, returns = jax.lax.scan(back, next_value[-1], columns, reverse=True)
        found = outputs[played.obs.astype(jnp.int32)]  # [T, N, A + 1]
        log_policy, value = jax.nn.log_softmax(found[..., :-1]), found[..., -1]
        log_prob = jnp.where(played.action[..., None] == jnp.arange(NUM_ACTIONS), log_policy, 0.0).sum(-1)
        policy_loss = -(log_prob * (returns - jax.lax.stop_gradient(value))).mean()
        value_loss, entropy = jnp.square(returns - value).mean(), -(jnp.exp(log_policy) * log_policy).sum(-1).mean()
        total = policy_loss + options.value_coefficient * value_loss - options.entropy_coefficient * entropy
        return total, (policy_loss, value_loss, entropy)

    def update(agent: Agents, goal: Array, noise: Array, number: Array) -> tuple[Agents, tuple[Transitions, Metrics]]:
        outputs, pull_back = jax.vjp(table, agent.parameters)
        streams, played = play(outputs, agent.cell, agent.timestep, goal, noise)
        of_outputs, metrics = jax.grad(loss, has_aux=True)(outputs, played)
        (gradient,) = pull_back(of_outputs)
        norm = jnp.sqrt(sum(jnp.square(part).sum() for part in gradient.values()))
        scale = jnp.minimum(options.max_gradient_norm / (norm + 1e-6), 1.0)
        mean, square, parameters = Parameters(), Parameters(), Parameters()
        for name, part in gradient.items():
            mean[name] = beta1 * agent.mean[name] + (1 - beta1) * scale * part
            square[name] = beta2 * agent.square[name] + (1 - beta2) * jnp.square(scale * part)
            spread = jnp.sqrt(square[name] / (1 - beta2**number)) + ADAM_EPS
            rate = options.learning_rate / (1 - beta1**number)
            parameters[name] = agent.parameters[name] - rate * mean[name] / spread
        return Agents(parameters, mean, square, *streams), (played, (*metrics, norm))

    def run(agents: Agents, goals: Array, key: Array, done: Array) -> tuple[Agents, Transitions, Metrics]:
        def one(agents: Agents, number: Array) -> tuple[Agents, tuple[Transitions, Metrics]]:
            noise = jax.random.uniform(jax.random.fold_in(key, number), (len(goals), num_steps, options.num_envs))
            return jax.vmap(update, (0, 0, 0, None))(agents, goals, noise, number.astype(jnp.float32))

        agents, (played, metrics) = jax.lax.scan(one, agents, done + 1 + jnp.arange(num_updates))
        return agents, played, metrics

    return jax.jit(run, donate_argnums=0)

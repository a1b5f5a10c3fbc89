"""An agent of another library in trials of several episodes: RecurrentPPO (RL^2) in a dark room of 5 x 5.

    pip install sb3-contrib
    python examples/as_gymnasium/recurrent_ppo.py [STEPS]

It learns on 20 goals, and is evaluated with frozen weights on 4 others, which no observation shows: what it finds in
one episode it can use in the next. Any Gymnasium environments take the place of the rooms.
"""

import sys

import gymnasium
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env

import icrl  # noqa: F401 - its worlds
from icrl.extensions.as_gymnasium.trials import TrialEnv, play_trials

HELD_OUT = [(0, 1), (1, 4), (4, 3), (3, 0)]
EPISODES = 8


def trials(goals: list[tuple[int, int]]) -> TrialEnv:
    rooms = [gymnasium.make("icrl/DarkRoom-v0", size=5, max_episode_steps=10, goal=goal) for goal in goals]
    return TrialEnv(rooms, EPISODES)


def main(num_steps: int, num_streams: int = 10) -> None:
    cells = [(row, column) for row in range(5) for column in range(5)]
    goals = [cell for cell in cells if cell not in HELD_OUT and cell != (2, 2)]  # episodes start at (2, 2)
    model = RecurrentPPO(
        "MultiInputLstmPolicy",
        make_vec_env(lambda: trials(goals), n_envs=16, seed=0),
        learning_rate=1e-3,
        n_steps=EPISODES * 10,
        batch_size=EPISODES * 40,
        n_epochs=4,
        gamma=0.95,
        ent_coef=0.02,
        policy_kwargs={"lstm_hidden_size": 64},
        seed=0,
    )
    show("before training", model, num_streams)
    show("after training", model.learn(num_steps), num_streams)


def show(name: str, model: RecurrentPPO, num_streams: int) -> None:
    success = play_trials(model.predict, trials(HELD_OUT), num_streams).mean(axis=(0, 1))
    print(f"{name}: success by episode on held-out goals", *(f"{share:.2f}" for share in success))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000)

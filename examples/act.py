"""Act with a trained model in a Gymnasium environment: python examples/act.py [RUN_FOLDER]"""

import sys

import gymnasium

import icrl

policy = icrl.load(sys.argv[1] if len(sys.argv) > 1 else "logs/dark_room-a2c")
room = {"size": policy.spec.width, "max_episode_steps": policy.spec.max_episode_steps}
env = gymnasium.make("icrl:icrl/DarkRoom-v0", goal=(policy.spec.width - 1, 1), **room)
print(icrl.rollout(policy, env, num_episodes=20))

"""Act with a trained model in a Gymnasium environment: python examples/act.py [RUN_FOLDER]"""

import sys

import gymnasium

import icrl

policy = icrl.load(sys.argv[1] if len(sys.argv) > 1 else "logs/dark_room-a2c")
room = {"size": policy.spec.width, "max_episode_steps": policy.spec.max_episode_steps}
env = gymnasium.make("icrl:icrl/DarkRoom-v0", goal=(policy.spec.width - 1, 1), **room)
print(icrl.rollout(policy, env, num_episodes=20))

policy.reset()  # the same in a loop of one's own; arguments of `act` have an entry for each stream, here one
obs, _ = env.reset()
action = policy.act([obs])
found = 0
for _ in range(200):
    obs, reward, terminated, truncated, _ = env.step(action[0])
    found += int(reward)
    if terminated or truncated:
        obs, _ = env.reset()  # the context stays
    action = policy.act([obs], [reward], [terminated], [truncated])
print(f"found the goal {found} times in 200 steps")

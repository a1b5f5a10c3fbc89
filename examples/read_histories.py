"""Read learning histories: python examples/read_histories.py [HISTORIES_FOLDER]"""

import sys

import numpy as np

import icrl

histories = icrl.open_histories(sys.argv[1] if len(sys.argv) > 1 else "histories/dark_room-a2c")
rewards = histories.rewards()  # [rows, time]
print(f"{len(rewards)} rows of {rewards.shape[1]} steps; mean reward per tenth of a life:")
print([round(float(part.mean()), 3) for part in np.array_split(rewards, 10, axis=1)])

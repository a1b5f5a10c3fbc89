"""Variants of an environment that has no arguments for them: cliff walks with the cliff elsewhere, as `Cliffs-v0`.

python -m src.pipeline env=gymnasium env.id=examples.cliffs:Cliffs-v0 'env.tasks=[{row: 3}, {row: 1, last: 6}]' ...
"""

import gymnasium
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv


class Cliffs(CliffWalkingEnv):
    """Cliff walk from the lower left to the lower right corner, with a cliff in one row, from column `first` to `last`.
    A step costs 1, a fall costs 100 and leads back to the start. Observations do not show the cliff."""

    def __init__(self, row: int = 3, first: int = 1, last: int = 10, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._cliff[:] = False
        self._cliff[row, first : last + 1] = True
        for state, actions in self.P.items():  # the transition table, which the planner reads
            for action in actions:
                actions[action] = self._calculate_transition_prob((state // 12, state % 12), action)


gymnasium.register("Cliffs-v0", Cliffs)

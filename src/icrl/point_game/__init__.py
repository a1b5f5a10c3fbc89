"""Two-player polyhedra game: rules, fixed players, environments, double DQN learners, matches.

Lowest first: `rules`, `spivakovsky`, `fixed_players`, `rollout`; above them the Gymnasium environments (`gymnasium`),
the world of the pipeline (`opponents`, `world`), the learners (`learners`, `fit`) and `matches`."""

"""Two-player polyhedra game. Lowest first: `rules`, `fixed_players`, `rollout` (many games side by side, and matches);
above them Gymnasium environments, the pipeline's world (`opponents`, `world`), and double DQN (`options`, `learners`,
`fit`)."""

"""Two-player polyhedra game. Lowest first: `rules`, `fixed_players`, `rollout` (many games side by side, matches); above them
Gymnasium environments (`gymnasium`), the pipeline's world (`opponents`, `world`), double DQN (`options`, `learners`,
`fit`)."""

"""Two-player polyhedra game. Lowest first: `rules`, `newton`, `fixed_players`, `rollout` (many games side by side, and
matches); above them the pipeline's world (`opponents`, `world`), players with a network (`options`, `trained_players`),
Gymnasium environments, and double DQN (`learners`, `fit`)."""

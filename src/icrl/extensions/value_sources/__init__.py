"""Extension: source algorithms that learn values of actions from replay: Q-learning and DQN."""

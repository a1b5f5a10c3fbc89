"""Extension: source algorithms that learn action values from replay: Q-learning and DQN."""

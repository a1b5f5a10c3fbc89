"""Players with a network, trained by double DQN: options, learners, the training loop, saved players."""

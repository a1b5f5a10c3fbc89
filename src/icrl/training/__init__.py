"""Stage two and the trials: the gradient loop, updates, optimizers, policy gradients. Start with `fit.fit`."""

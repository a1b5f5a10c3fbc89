"""Loop of stage one: unrolls of all learners, and training samples from them. Start with `collect.collect`."""

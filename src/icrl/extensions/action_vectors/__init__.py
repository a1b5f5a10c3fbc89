"""Extension: actions as random vectors, `model.head=action_vectors`, so that one model acts on sets of actions of other
size and meaning than in its training."""

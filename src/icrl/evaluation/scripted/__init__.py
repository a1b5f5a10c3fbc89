"""Policies that are not trained: explorers, searchers and random play. They know the rules of a world, but of its task
only what they have seen. Evaluations use them as references."""

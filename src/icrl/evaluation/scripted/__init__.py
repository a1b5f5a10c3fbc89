"""Policies that are not trained: explorers and searchers, which know the rules of a world, but of its task only what
they have seen, and random play. They are the references of evaluations."""

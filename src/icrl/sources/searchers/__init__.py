"""Sources that search: agents and explorers that know the rules of a world, but of its task only what they have seen.

`searcher.py` is the source; the others are its ways to look for the goal, and references of evaluations.
"""

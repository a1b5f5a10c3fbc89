"""Extension: searchers as a source, and what they would do as labels. They know the rules of a world, but of its task
only what they have seen; that is `evaluation.scripted`."""

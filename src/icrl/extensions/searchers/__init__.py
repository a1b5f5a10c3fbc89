"""Extension: searchers as a source, and their choices as labels. The searchers are in `evaluation.scripted`."""

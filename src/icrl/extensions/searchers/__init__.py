"""Extension: scripted policies that search, as references, as a source, and for labels. They know the rules of a
world, but of its task only what they have seen."""

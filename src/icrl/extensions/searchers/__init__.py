"""Extension: policies that are not trained and search rooms: references, a source, and labels. They know the rules
of a world, but of its task only what they have seen."""

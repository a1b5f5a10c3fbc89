"""Extension: videos of source agents, and of lives of a model beside a source agent."""

NEEDS = ("maps",)

"""Extension: soft actor-critic as a source, `source=sac`, for continuous actions. It uses the replay of
`value_sources` and the MLPs of `vectors`."""

NEEDS = ("value_sources", "vectors")

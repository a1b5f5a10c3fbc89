"""Extension: soft actor-critic as a source, `source=sac`, for continuous actions. It learns from the replay of
`value_sources`, with perceptrons of `vectors`."""

NEEDS = ("value_sources", "vectors")

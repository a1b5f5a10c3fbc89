"""Extension: unrolls that a separate process plays ahead of the updates (`source.async_unroll`)."""

NEEDS = ("parallel",)

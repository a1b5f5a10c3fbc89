"""Extension: unrolls that a separate process plays ahead of the updates (`source.async_unroll`), and A3C, which learns
from them (`source=a3c`)."""

NEEDS = ("parallel",)

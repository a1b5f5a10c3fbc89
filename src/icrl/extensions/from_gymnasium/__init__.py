"""Extension: Gymnasium environments as worlds (`env=gymnasium`), stepped in this process or in worker processes.

The other direction is `as_gymnasium`."""

NEEDS = ("exact", "parallel")

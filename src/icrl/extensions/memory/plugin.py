"""The heads of this extension, and the rules of what fits them."""

from collections.abc import Iterator

from icrl.app.root import Config, rule
from icrl.extensions.memory import heads

__all__ = ["heads"]


@rule
def _with_memory(config: Config) -> Iterator[str]:
    source = config.source
    if getattr(source, "body", "") == "gru" and source.async_unroll:
        yield "$source.body needs source.async_unroll=false: the process that plays does not save what it remembers"
    if getattr(source, "body", "") == "gru" and source.mini_batch_length == 1:
        yield (
            "$source.mini_batch_length is too short to learn what to remember with $source.body: give 0, the unroll, "
            "or 2 or more"
        )

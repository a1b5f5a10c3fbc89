"""The heads of this extension, and the rules of what fits them."""

from collections.abc import Iterator

from icrl.app.root import Config, rule
from icrl.extensions.memory import heads

__all__ = ["heads"]


@rule
def _with_memory(config: Config) -> Iterator[str]:
    if getattr(config.source, "body", "") != "gru":
        return
    if config.source.async_unroll:
        yield "$source.body needs source.async_unroll=false: the process that plays does not save what it remembers"
    if config.source.mini_batch_length == 1:
        short = "$source.mini_batch_length is too short to learn what to remember with $source.body"
        yield f"{short}: give 0, the unroll, or 2 or more"

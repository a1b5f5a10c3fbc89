"""The references of this extension, its source and its labels."""

from icrl.extensions.searchers import references, searcher

__all__ = ["references", "searcher"]

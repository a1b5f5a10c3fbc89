"""The source of this extension, and its labels."""

from icrl.extensions.searchers import searcher

__all__ = ["searcher"]

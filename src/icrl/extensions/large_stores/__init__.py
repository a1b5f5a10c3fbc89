"""Extension: stores that are large: pages of a batch are read together, and files that were checked are noted."""

"""Extension: attention on a CPU that is faster than that of PyTorch, in updates and from a cache."""

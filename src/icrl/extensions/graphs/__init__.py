"""Extension: rollouts of trials as one CUDA graph, on a GPU."""

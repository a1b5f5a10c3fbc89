"""Gymnasium environments as worlds: tasks, spaces, streams in this process and in others."""

"""Learning histories: the store on disk, reward plug-ins, step weights, windows and mixtures of stores.

Start with `open_histories(folder)`, which gives checked, memory-mapped columns.
"""

"""Learning histories: the store on disk, reward plug-ins, step weights and windows; start with `open_histories`."""

"""Extension: work on several machines and processes: engines that run commands, data-parallel training of one
model, and stage one in shards that are read as one store."""

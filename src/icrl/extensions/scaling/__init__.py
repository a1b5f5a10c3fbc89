"""Work in parts: engines that run commands on many machines, and stage one in shards that read as one store."""

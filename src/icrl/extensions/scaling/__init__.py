"""Work in parts: engines that run commands on many machines, processes that train one model together, and stage one in
shards that read as one store."""

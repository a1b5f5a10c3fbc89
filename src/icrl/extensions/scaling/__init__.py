"""Extension: work on several machines and processes: engines that run commands, data-parallel training of one
model, and stage one in shards that are read as one store."""

from icrl.extensions.scaling.tied import tie_if_asked

NEEDS = ("parallel",)

tie_if_asked()  # before PyTorch is imported, because that takes seconds in which the parent may end

"""Returns, targets and statistics, as pure functions of tensors."""

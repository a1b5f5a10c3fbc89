"""Extension: source agents whose task changes between episodes (`source.task_change`)."""

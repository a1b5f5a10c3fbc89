"""Extension: source agents whose task changes between episodes, with `source.task_change`."""

"""Shared by all programs: the root of all options and its rules, composing it from presets and a command line, help,
and the page of options. It stands above every room; `config/` has what stands below them."""

"""Shared by all programs: the root of all options and its rules, composing it from presets and a command line, help.

It is above all other folders of the core; `config/` is below them."""

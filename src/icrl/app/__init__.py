"""Code that all programs share: the root of all options and its rules, composition from presets and command line, help.

It may import from all other folders of the core; `config/` imports from none of them."""

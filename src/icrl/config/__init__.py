"""Declaration of options, schedules, and import of modules of the user's own.

All other folders may import from here; this one imports from none of them."""

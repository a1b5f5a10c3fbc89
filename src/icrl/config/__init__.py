"""Options of components: their declaration, schedules and modules of the user's own.

All other folders may import from here, and this one imports from none of them."""

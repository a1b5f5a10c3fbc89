"""Programs of the core, one file each: a configuration and a `main(config)`."""

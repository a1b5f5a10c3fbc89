"""Extension: histories in files of other programs: `src.import_histories`, `src.export_histories`."""

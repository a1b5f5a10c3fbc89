"""Extension: import and export of histories in other file formats: `src.import_histories`, `src.export_histories`."""

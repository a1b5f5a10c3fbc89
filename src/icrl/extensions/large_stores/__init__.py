"""Extension: large history stores: reads the pages of a batch together, and checks each large file only once."""

"""Networks: the in-context model and its cache, networks of source learners."""

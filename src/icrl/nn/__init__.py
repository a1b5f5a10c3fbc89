"""Networks: the in-context model and its cache, the critic, networks of source learners."""

"""Networks: the in-context model and its cache, the critic, stacked networks of many learners, listed layers.

Import any module from here; none of them knows an environment by name, a configuration file or a training loop.
"""

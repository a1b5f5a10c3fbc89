"""The sources of this extension."""

from icrl.extensions.experts import noise_distillation

__all__ = ["noise_distillation"]

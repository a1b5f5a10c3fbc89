"""Extension: recurrent layers in place of attention: `model.trunk=delta`, the gated delta rule, and `gru`."""

"""Programs of the extension `td3_bc`."""

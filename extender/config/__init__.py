"""Settings: file, environment and flags become one frozen value."""

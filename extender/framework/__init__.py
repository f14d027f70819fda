"""A plugin's form, and the running of plugins: Filter and Score, status, profile, algorithm, cluster events."""

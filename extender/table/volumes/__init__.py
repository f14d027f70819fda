"""Volumes as columns: attachments, limits, unbound volumes and their users."""

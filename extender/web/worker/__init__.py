"""A gunicorn worker with one blocking thread for each connection."""

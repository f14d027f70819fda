"""Recordings: made of the timelines of tests/recordings, read back and replayed."""

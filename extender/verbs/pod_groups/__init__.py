"""Plans pod groups for filter, keeps gangs together at bind, and keeps room for gangs that were split."""

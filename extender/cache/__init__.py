"""The assumed-pod cache: what the watches told, what was decided since, and the tables that readers borrow."""

"""The devices that nodes reach, and what claims hold of them already."""

"""NodeAffinity: nodeSelector and node affinity."""

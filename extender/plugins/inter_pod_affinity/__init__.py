"""InterPodAffinity: pods attract and repel one another within topology domains."""

"""Training of many models of one architecture as one computation."""

"""Pictures of residuals, embeddings and training curves, and the interactive Poincaré disk."""

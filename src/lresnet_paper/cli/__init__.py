"""The verbs of the reproduction, one module each."""

__all__ = ["SUMMARIES"]

SUMMARIES = {
    "reproduce": "Run a table of the paper: search, then the chosen settings over all seeds.",
    "bench": "Time residuals, networks and epochs, with GPU synchronisation.",
    "untrained": "Rank links by scores that are not trained: raw features, paths and degrees.",
    "collapse": "Train deep chains of residuals, and measure every layer during training.",
    "ancestors": "Name the code of the ancestor k hops up: residual, curvature, width and depth.",
    "selected_on_test": "Measure what choosing the epoch on the test set adds to a test score.",
    "completion": "Complete the noun hierarchy of WordNet by ranking, in several dimensions.",
    "hierarchy": "Train CIFAR-100 with hierarchy-aware losses, Lorentz and Euclidean.",
    "pages": "Render the generated pages and pictures of the documentation.",
    "report": "Print the results of reproduced tables next to the paper's.",
}
"""The line of every verb in an overview, which is read without importing the verb."""

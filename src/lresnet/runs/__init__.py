"""One run is one folder: train, evaluate, predict, embed, detect, and the report of a user's runs."""

"""Study of hierarchy completion: parents and ancestors of WordNet's nouns, found by ranking all candidates.

The plan is ``completion.toml``; it was written before the runs.
"""

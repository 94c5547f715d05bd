"""The generated pages: tables, claims and their answers, rendered from the results."""

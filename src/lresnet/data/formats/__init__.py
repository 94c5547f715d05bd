"""File formats: readers that several data sets share, and readers of users' own files."""

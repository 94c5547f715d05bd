"""HTML pages that need no network, with their templates, styles and scripts."""

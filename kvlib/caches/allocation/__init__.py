"""Where the tokens of a request are stored: in reserved rows, or in blocks that requests share."""

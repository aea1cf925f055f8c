"""Where the tokens of a request lie: in rows set aside, or in blocks that requests share."""

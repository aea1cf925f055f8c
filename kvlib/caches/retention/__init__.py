"""Which tokens of a request stay, by position or by score; and Quest, which reads only some."""

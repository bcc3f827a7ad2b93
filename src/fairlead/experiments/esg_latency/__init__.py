"""How long the four applications take under ESG and its rivals."""

"""A run on several processes: units of work, who judges them, and how results come together."""

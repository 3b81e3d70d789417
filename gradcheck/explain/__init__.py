"""Why is it wrong? Which stages of a model may be at fault, and what exactly they do."""

"""What exactly is wrong with one stage's VJP: hypotheses that reproduce what it returned."""

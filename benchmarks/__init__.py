"""Speed, as ratios measured side by side; never a test."""

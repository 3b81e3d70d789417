"""What is the true derivative? Differences with error bars, and a 50-digit oracle for disputes."""

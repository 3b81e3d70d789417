"""Can the check fail? Wrong backward passes, run through the same judgement."""

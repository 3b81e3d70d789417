"""Properties of a backward beyond its numbers, one module per kind (`judge.contract_check`)."""

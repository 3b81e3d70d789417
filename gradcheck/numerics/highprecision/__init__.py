"""A forward without a spec, evaluated in numbers of many digits through NumPy's protocols."""

"""A call whose process ends, without a process: raised where bindings of ours raise it."""

from gradcheck.implementations import returned


def ends(name, reason, verdict):
    """Raise what a binding does; from a function that is judged it would be one more exception."""
    error = returned.broken(name, reason, verdict)
    exec("raise error", vars(returned), {"error": error})  # noqa: S102  the frame tells whose it is

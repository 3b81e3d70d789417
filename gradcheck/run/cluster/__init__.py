"""The same run on a Dask cluster: many machines judge, each in processes of gradcheck's own.

A Dask worker judges nothing itself. `dask_worker` runs there and keeps one process per task that is
under way (`process`); so it does not matter how many threads a worker has, what its NumPy has been
told, or whether the code judged dies. `work` is the client's side; `connect` reaches a cluster or
starts one; `identity` is what must be the same on every machine.
"""

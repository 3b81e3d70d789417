"""A run on a Dask cluster: many machines judge, each in child processes.

`client` is the side of the run, `dask_worker` that of a worker. A worker does not judge itself: it
keeps a `process` per running task, so that neither its threads and settings nor a crash of the code
judged matter.
"""

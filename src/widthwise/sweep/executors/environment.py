"""What a worker is told about its device. It has to know before JAX is imported, so it is told in its environment."""


def on_cpu(threads: int) -> dict[str, str]:
    """Give the variables that keep a worker on the CPU, and on its share of it.

    XLA sizes its pool of threads by NPROC: without it, every worker would start one for each core.
    """
    share = str(max(threads, 1))
    return {"JAX_PLATFORMS": "cpu", "NPROC": share, "OMP_NUM_THREADS": share, "OPENBLAS_NUM_THREADS": share}


def on_gpu(share: float) -> dict[str, str]:
    """Give the variables that let several workers use one GPU: JAX takes three quarters of its memory unless told.

    >>> on_gpu(0.5), on_gpu(1.0)
    ({'XLA_CLIENT_MEM_FRACTION': '0.45'}, {})
    """
    return {"XLA_CLIENT_MEM_FRACTION": f"{0.9 * share:.2f}"} if share < 1 else {}

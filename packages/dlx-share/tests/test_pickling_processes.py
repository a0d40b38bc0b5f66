"""Tensors between processes, by the engines that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.optional_libraries import requires
from support.python_process import run_python

# In a process of its own: others of pytest have threads, with which none can fork.
BEGIN = """
from support.process_work import answer, check, tensors
"""
ENGINES = {
    "joblib": """
        import joblib
        run = joblib.delayed(answer)
        with joblib.parallel_config(backend="loky", n_jobs=2):
            for answered in joblib.Parallel()(run(tensors()) for _ in range(2)):
                check(answered)
        """,
    "loky": """
        import loky
        with loky.get_reusable_executor(max_workers=1) as executor:
            check(executor.submit(answer, tensors()).result())
            # By cloudpickle.
            check(executor.submit(lambda xs: answer(xs), tensors()).result())
        """,
}


def check_run(code: str) -> None:
    """Run code that checks itself, after `BEGIN`."""
    from textwrap import dedent

    assert run_python(BEGIN + dedent(code)) == (0, "", "")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_takes_tensors(method: str) -> None:
    """README.md, Engines: through pipes and queues, without more."""
    check_run(
        f"""
        import multiprocessing
        context = multiprocessing.get_context({method!r})
        with context.Pool(1) as pool:
            check(pool.apply(answer, (tensors(),)))
        """
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_executors_take_tensors(method: str) -> None:
    """README.md, Engines: those of `concurrent.futures`."""
    check_run(
        f"""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        context = multiprocessing.get_context({method!r})
        with ProcessPoolExecutor(1, mp_context=context) as executor:
            check(executor.submit(answer, tensors()).result())
        """
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_takes_tensors(engine: str) -> None:
    """README.md, Engines: without more."""
    requires(engine)
    check_run(ENGINES[engine])


def test_joblib_stores_a_tensor(tmp_path: Path) -> None:
    """README.md, Engines: its pickler is one in Python, and hashes by it."""
    joblib = requires("joblib")
    check_run(
        f"""
        import joblib
        from support.process_work import description
        xs = tensors()
        joblib.dump(xs, {str(tmp_path / "tensors")!r})
        back = joblib.load({str(tmp_path / "tensors")!r})
        assert [*map(description, back)] == [*map(description, xs)]
        assert joblib.hash(xs) == joblib.hash(tensors()) != joblib.hash(xs[:2])
        """
    )
    assert joblib is not None


def test_cloudpickle_takes_tensors_in_functions() -> None:
    """README.md, Engines: in a closure, and out of band."""
    requires("cloudpickle")
    check_run(
        """
        import cloudpickle, pickle
        from support.process_work import description
        xs = tensors()
        buffers = []
        text = cloudpickle.dumps(lambda: xs, 5, buffer_callback=buffers.append)
        back = pickle.loads(text, buffers=buffers)()
        assert [*map(description, back)] == [*map(description, xs)]
        assert back[0].data_ptr == xs[0].data_ptr
        """
    )

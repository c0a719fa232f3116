"""Compiled kernels and the threads they run on; the only module that sets options of numba and BLAS.

``@kernel`` compiles a function that Python calls; ``@inner`` one that only kernels call; ``@generic`` declares an
operation (``value``, ``add_rows``) whose code is picked by the type of its first argument, so that one kernel serves
dense and CSR rows and every loss.  With ``NUMBA_DISABLE_JIT=1`` all three are plain Python: the oracle of the tests.
Kernels run without the GIL: ``ordered_map`` calls them on all cores.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import numba as _numba
import numpy as np
from numba.core import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime import rtsys
from numba.extending import overload

from ._cores import VARIABLE, cores

T = TypeVar("T")
numba: Any = _numba  # its type stubs lack half of what is used here

# Sums may be reordered (that vectorises a dot product); NaN and inf keep their meaning, so checks for them stay true.
SUMS = {"reassoc", "contract", "nsz"}
# For scans whose result is not used if an entry is not finite: also lets a maximum vectorise.
FINITE = SUMS | {"nnan", "ninf"}
QUIET = 1 << 18  # numbers of the data from which on BLAS is held to one thread
CHECKSUM = 16  # bytes in front of compiled code on disk


@functools.cache
def source_digest() -> str:
    """A digest of every source file that holds jitted code.

    Numba's own stamp covers the file of the kernel only, and would go on serving the old loss after an edit of
    losses.py.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        text = path.read_bytes()
        if b"_jit" in text:
            digest.update(path.name.encode() + b"\0" + text)
    return digest.hexdigest()[:16]


class _Files(IndexDataCacheFile):
    """One file for each compiled signature, named after all that its code depends on.

    Numba numbers its files by an index, which two processes that compile at once can get wrong; a name cannot be wrong.
    A file begins with a checksum: code with a wrong byte is not loaded, since it may crash the process.
    """

    def _name(self, key: Any) -> str:
        text = repr((key, self._version, source_digest()))
        return self._data_name(int(hashlib.sha256(text.encode()).hexdigest()[:15], 16))

    def save(self, key: Any, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(self._name(key))) as file:
            file.write(_checksum(content) + content)

    def load(self, key: Any) -> Any:
        """What was saved; None if nothing was, or it is damaged: then it is compiled, and saved again."""
        try:
            saved = memoryview(Path(self._data_path(self._name(key))).read_bytes())
        except FileNotFoundError:
            return None
        content = saved[CHECKSUM:]
        return pickle.loads(content) if _checksum(content) == saved[:CHECKSUM] else None


def _checksum(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECKSUM).digest()


class _DigestCache(FunctionCache):
    """Numba's function cache: never stale, never in the way."""

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, source_digest())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load compiled code without what only compiling needs; None if there is none, or it is damaged.

        Numba first refreshes its registries, for which it imports all of its library and SciPy's BLAS: 0.35 s, half
        of the time that a process needs to its first result.  Finished code asks for the reference-counting runtime
        only; a kernel that is not in the cache is compiled as usual, and that refreshes.
        """
        rtsys.initialize(target_context)
        try:
            code = self._load_overload(sig, target_context)
            return code if code is not None and tuple(code.signature.args) == tuple(sig) else None
        except Exception:  # a damaged file can raise anything; then the kernel is compiled again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):  # a full disk: then the next process compiles too
            super().save_overload(sig, data)


class Kernel:
    """A compiled function with a twin that never touches the disk, for arguments of foreign types.

    A loss defined outside this package may change between two processes without our digest noticing: compiled code
    for it must not enter the cache.
    """

    def __init__(self, function: Callable[..., Any], fastmath: Any) -> None:
        functools.update_wrapper(self, function)
        self._fastmath = fastmath
        self._cached = numba.njit(nogil=True, fastmath=fastmath)(function)
        if not numba.config.DISABLE_JIT:
            with contextlib.suppress(RuntimeError, OSError):  # no place for a cache: compile in every process
                self._cached._cache = _DigestCache(function)
        _kernels.append(self)

    @functools.cached_property
    def _twin(self) -> Any:
        return numba.njit(nogil=True, fastmath=self._fastmath)(self.__wrapped__)  # type: ignore[attr-defined]

    def __call__(self, *args: Any) -> Any:
        if any(map(_is_foreign, map(type, args))):
            return self._twin(*args)
        return self._cached(*args)


_kernels: list[Kernel] = []


def count_compiled() -> int:
    """How many signatures of kernels this process has compiled or loaded so far."""
    return sum(len(getattr(kernel._cached, "overloads", ())) for kernel in _kernels)


@functools.cache
def _is_foreign(cls: type) -> bool:
    return issubclass(cls, tuple) and not cls.__module__.startswith("ksparse.")


def kernel(function: Callable[..., Any] | None = None, *, fastmath: Any = False) -> Any:
    """Compile a function that Python calls (without the GIL, cached on disk)."""
    if function is None:
        return functools.partial(kernel, fastmath=fastmath)
    return Kernel(function, fastmath)


def inner(function: Callable[..., Any] | None = None, *, fastmath: Any = False, hot: bool = False) -> Any:
    """Compile a function that only kernels call; `hot` puts its code into the caller's loop, whatever its size."""
    if function is None:
        return functools.partial(inner, fastmath=fastmath, hot=hot)
    # without the wrappers for Python, which for a tuple of arrays take longer to compile than the function
    return numba.njit(nogil=True, fastmath=fastmath, forceinline=hot, no_cpython_wrapper=True, no_cfunc_wrapper=True)(
        function
    )


def generic(stub: Callable[..., Any] | None = None, *, fastmath: Any = False) -> Any:
    """Declare an operation whose rule is picked by the type of its first argument; that for `object` serves the rest.

    For example, with a NamedTuple ``Circle``::

        @generic
        def area(shape): "The area of a shape."

        @area.rule(Circle)
        def _(shape):
            return 3.14159 * shape.radius**2
    """
    if stub is None:
        return functools.partial(generic, fastmath=fastmath)
    rules: dict[type, Callable[..., Any]] = {}
    names = list(inspect.signature(stub).parameters)

    @functools.wraps(stub)
    def operation(*args: Any) -> Any:
        return _find(type(args[0]))(*args)

    def _find(cls: type) -> Callable[..., Any]:
        if cls not in rules and object not in rules:
            known = ", ".join(c.__name__ for c in rules)
            raise TypeError(f"{stub.__name__} has no rule for {cls.__name__}; it has rules for {known}")
        return rules.get(cls) or rules[object]

    def pick(first: Any) -> Callable[..., Any]:
        return _find(np.ndarray if isinstance(first, types.Array) else getattr(first, "instance_class", type(first)))

    # numba wants the overload's parameters to carry the stub's names, hence a function made from text
    scope: dict[str, Any] = {"pick": pick}
    exec(f"def choose({', '.join(names)}):\n    return pick({names[0]})", scope)
    # a division by zero gives inf: to raise an error there would keep a loop from vectorising
    options: Any = {"nogil": True, "fastmath": fastmath, "forceinline": True, "error_model": "numpy"}
    overload(operation, jit_options=options)(scope["choose"])

    def rule(cls: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            if cls in rules and cls.__module__.startswith("ksparse."):
                raise ValueError(f"{stub.__name__} has a rule for {cls.__name__} already; define a type of your own")
            rules[cls] = function
            return operation

        return register

    operation.rule = rule  # type: ignore[attr-defined]
    operation.rules = rules  # type: ignore[attr-defined]
    return operation


# --- threads ---------------------------------------------------------------------------------------------------------
most_threads: ContextVar[int | None] = ContextVar("most_threads", default=None)


def threads() -> int:
    """How many threads a pass over the data may use: what `most_threads` says here, or else the cores of this process.

    Without KSPARSE_NUM_THREADS also NUMBA_NUM_THREADS counts, which joblib sets in its workers.
    """
    most = cores()
    if VARIABLE not in os.environ:
        most = max(1, min(most, int(numba.config.NUMBA_NUM_THREADS)))
    return min(most, most_threads.get() or most)


@contextmanager
def at_most_threads(count: int | None) -> Iterator[None]:
    """Limit the threads of kernels for calls from this thread; None for no other limit than there is."""
    before = most_threads.set(min(count or threads(), threads()))
    try:
        yield
    finally:
        most_threads.reset(before)


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="ksparse")


if hasattr(os, "register_at_fork"):  # a forked child has no threads: it must make its own pool
    os.register_at_fork(after_in_child=_pool.cache_clear)


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@functools.lru_cache(maxsize=1)
def _openmp(modules: int) -> Any:
    """The OpenMP libraries.  Finding them takes milliseconds, so they are cached until another module is loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="openmp")


def blas_threads() -> int:
    """How many threads BLAS uses now."""
    return max((library.num_threads for library in _blas().lib_controllers), default=1)


_alone = threading.Lock()
_limits: list[Any] = []  # one entry per caller; the first one knows the limit to restore


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread until all callers have left, in whatever order.

    Needed where there are threads already, or where NumPy and SciPy alternate: each has its own BLAS, whose
    threads wait by spinning and so occupy the cores that the other one needs.
    """
    with _alone:
        _limits.append(_limits[0] if _limits else _blas().limit(limits=1))
    try:
        yield
    finally:
        with _alone:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()


def quiet_blas(numbers: int) -> AbstractContextManager[None]:
    """`one_blas_thread` for work on so many numbers of data; nothing for few, which BLAS does in one thread anyway.

    On a machine that others use too, threads of BLAS that wait for each other can take many times as long as one
    thread alone.  Products that are worth it are divided among our own threads (`ordered_map`), which wait asleep.
    """
    return one_blas_thread() if numbers >= QUIET else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit kernels, BLAS and OpenMP to one thread, for calls from this thread."""
    # OpenMP keeps one number per thread
    with at_most_threads(1), one_blas_thread(), _openmp(len(sys.modules)).limit(limits=1):
        yield


@contextmanager
def more_blas_threads(count: int) -> Iterator[None]:
    """`count` threads for a large product, inside `one_blas_thread`."""
    libraries = _blas().lib_controllers if count > 1 else []
    for library in libraries:
        library.set_num_threads(count)
    try:
        yield
    finally:
        for library in libraries:
            library.set_num_threads(1)


def ordered_map(function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
    """Like ``map``, on all cores; results come in order.

    The calling thread does its share of the work: while it waits, it may occupy a core for longer than a pass lasts.
    """
    helpers = min(threads(), len(items)) - 1
    if helpers < 1:
        yield from map(function, items)
        return
    results: dict[int, T] = {}
    window = 2 * helpers + 2  # how far helpers may run ahead: finished results take memory until their turn
    begun = ready = 0
    stopped = False
    state = threading.Condition()

    def take(patient: bool) -> int | None:
        nonlocal begun
        with state:
            if patient:
                state.wait_for(lambda: stopped or begun >= len(items) or begun < ready + window)
            if stopped or begun >= len(items):
                return None
            begun += 1
            return begun - 1

    def drain() -> None:
        while (item := take(True)) is not None:
            results[item] = function(items[item])

    def in_order() -> Iterator[T]:
        nonlocal ready
        while ready in results:
            yield results.pop(ready)
            with state:
                ready += 1
                state.notify_all()

    running = [_pool(helpers).submit(drain) for _ in range(helpers)]
    try:
        while (item := take(False)) is not None:
            results[item] = function(items[item])
            yield from in_order()
        for helper in running:
            helper.result()
        yield from in_order()
    finally:  # after an error or Ctrl-C, start no further items
        with state:
            stopped = True
            state.notify_all()

"""Sensing operators: chosen rows of fast transforms, and wavelets, without storing a matrix.

All are scipy.sparse.linalg.LinearOperator: they multiply one vector or many at once, have an adjoint ``A.H``, can be
pickled and multiplied with each other, ``A @ W``.  Transforms use one thread unless scipy.fft.set_workers sets more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from .._validate import check_count, check_generator, check_number, refuse

Shape = int | tuple[int, ...]
TRANSFORMS: dict[str, tuple[Any, Any, Any]] = {  # forward, its inverse, and the type of its entries
    "DFT": (scipy.fft.fftn, scipy.fft.ifftn, np.complex128),
    "DCT": (scipy.fft.dctn, scipy.fft.idctn, np.float64),
    "identity": (None, None, np.float64),
}


class PartialTransform(LinearOperator):
    """`scale` times chosen rows of an orthonormal transform; made by `partial_fourier` and the functions after it."""

    def __init__(self, transform: str, signal_shape: tuple[int, ...], rows: NDArray[np.intp], scale: float) -> None:
        super().__init__(TRANSFORMS[transform][2], (rows.size, math.prod(signal_shape)))
        self.transform = transform
        self.signal_shape = signal_shape
        self.rows = rows
        self.scale = scale

    def __repr__(self) -> str:
        n, d = self.shape
        of = "" if len(self.signal_shape) == 1 else f" of {'×'.join(map(str, self.signal_shape))} signals"
        return f"<{n} of {d} rows of the {self.transform}{of}, scaled by {self.scale:.4g}, {self.dtype}>"

    def _apply(self, function: Any, X: NDArray[Any], *, overwrite_x: bool) -> NDArray[Any]:
        if function is None:
            return X
        axes = range(len(self.signal_shape))
        cube = X.reshape(*self.signal_shape, *X.shape[1:])
        return function(cube, axes=axes, norm="ortho", overwrite_x=overwrite_x).reshape(X.shape)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        X = X.astype(np.result_type(X, np.float64), copy=False)
        Y = self._apply(TRANSFORMS[self.transform][0], X, overwrite_x=False)[self.rows]
        Y *= self.scale
        return Y

    def _rmatmat(self, Y: NDArray[Any]) -> NDArray[Any]:
        Z = np.zeros((self.shape[1], *Y.shape[1:]), dtype=np.result_type(Y, self.dtype))
        Z[self.rows] = self.scale * Y
        return self._apply(TRANSFORMS[self.transform][1], Z, overwrite_x=True)

    _matvec = _matmat
    _rmatvec = _rmatmat


def partial_fourier(
    n: int | None, d: Shape, *, random_state: Any = None, rows: ArrayLike | None = None, scale: float | None = None
) -> PartialTransform:
    """Rows of the unitary discrete Fourier transform, uniformly random or given.

    Parameters
    ----------
    n : int or None
        Number of rows; None if `rows` is given.
    d : int or tuple of int
        Length of the signals, or shape of images and volumes, which are flattened.
    random_state : None, int or Generator, default=None
        For drawing the rows, without replacement.
    rows : array of indices, or mask of the signal's shape, default=None
        The frequencies, in the order of numpy.fft.fftn; `mri_mask` makes such a mask.
    scale : float, default=None
        √(d/n) by default: then the columns have norm 1, as algorithms with a unit step need.  With 1, the measurements
        are the coefficients of the transform.

    Returns
    -------
    PartialTransform

    Examples
    --------
    >>> import numpy as np
    >>> A = partial_fourier(3, 8, random_state=0)
    >>> A
    <3 of 8 rows of the DFT, scaled by 1.633, complex128>
    >>> x = np.arange(8.0)
    >>> bool(np.allclose(A @ x, np.fft.fft(x)[A.rows] / np.sqrt(3)))
    True
    """
    return _partial("DFT", n, d, random_state, rows, scale)


def partial_dct(
    n: int | None, d: Shape, *, random_state: Any = None, rows: ArrayLike | None = None, scale: float | None = None
) -> PartialTransform:
    """Rows of the orthonormal discrete cosine transform (DCT-II), which is real; uniformly random or given.

    Parameters
    ----------
    n : int or None
        Number of rows; None if `rows` is given.
    d : int or tuple of int
        Length of the signals, or shape of images and volumes, which are flattened.
    random_state : None, int or Generator, default=None
        For drawing the rows, without replacement.
    rows : array of indices, or mask of the signal's shape, default=None
        The frequencies, in the order of scipy.fft.dctn.
    scale : float, default=None
        √(d/n) by default; with 1, the measurements are the coefficients of the transform.

    Returns
    -------
    PartialTransform

    Examples
    --------
    >>> import numpy as np
    >>> A = partial_dct(None, 4, rows=[0], scale=1)
    >>> (A @ np.ones(4)).round(12)
    array([2.])
    """
    return _partial("DCT", n, d, random_state, rows, scale)


def partial_identity(
    n: int | None, d: Shape, *, random_state: Any = None, rows: ArrayLike | None = None, scale: float | None = None
) -> PartialTransform:
    """Samples of a signal at random or given places, for signals that are sparse in another basis.

    Parameters
    ----------
    n : int or None
        Number of samples; None if `rows` is given.
    d : int or tuple of int
        Length of the signals, or shape of images and volumes, which are flattened.
    random_state : None, int or Generator, default=None
        For drawing the places, without replacement.
    rows : array of indices, or mask of the signal's shape, default=None
        The places.
    scale : float, default=None
        √(d/n) by default; with 1, the measurements are the samples themselves.

    Returns
    -------
    PartialTransform

    Examples
    --------
    >>> import numpy as np
    >>> partial_identity(None, 5, rows=[1, 3], scale=1) @ np.array([0.0, 10.0, 20.0, 30.0, 40.0])
    array([10., 30.])
    """
    return _partial("identity", n, d, random_state, rows, scale)


def _partial(transform: str, n: Any, d: Any, random_state: Any, rows: Any, scale: Any) -> PartialTransform:
    shape = check_shape(d, "d")
    size = math.prod(shape)
    if rows is not None:
        chosen = _check_rows(rows, shape)
        if n is not None and check_count(n, "n") != chosen.size:
            raise ValueError(f"n must be the number of rows, {chosen.size}, or None, got {n}")
    elif n is None:
        raise ValueError("n must be an integer unless rows are given, got None")
    else:
        n = check_count(n, "n", high=size, high_text=f"the {transform} of d = {d} has no more rows")
        chosen = np.sort(check_generator(random_state).choice(size, n, replace=False, shuffle=False))
    scale = math.sqrt(size / chosen.size) if scale is None else check_number(scale, "scale", strict=True)
    return PartialTransform(transform, shape, chosen.astype(np.intp, copy=False), scale)


def _check_rows(rows: Any, shape: tuple[int, ...]) -> NDArray[np.intp]:
    size, array = math.prod(shape), np.asarray(rows)
    if array.dtype == np.bool_:
        if array.shape not in (shape, (size,)):
            raise ValueError(f"rows is a mask of shape {array.shape}; it must have that of the signal, {shape}")
        array = np.flatnonzero(array)
    if array.size == 0:
        raise ValueError("rows must hold at least one row, got none")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"rows must be a vector of indices or a mask, got {array.dtype} of shape {array.shape}; "
            "np.ravel_multi_index turns positions in an image into indices"
        )
    refuse((array < 0) | (array >= size), lambda at: f"rows must be in 0, ..., {size - 1}, got {array[at]}")
    if np.unique(array).size < array.size:
        raise ValueError("rows must differ from each other; np.unique drops repetitions")
    return array.astype(np.intp)


def mri_mask(shape: Shape, n: int, *, random_state: Any = None, power: float = 1.0) -> NDArray[np.bool_]:
    """A random mask of n frequencies, dense at low ones, as MRI scanners sample; the `rows` of `partial_fourier`.

    A frequency of radius r (1 at the edge) is drawn with a weight of about r^-power, together with its negative, which
    gives no new information about a real image, but keeps the images of the adjoint real.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the images.
    n : int
        Number of frequencies.
    random_state : None, int or Generator, default=None
        The same seed gives the same mask.
    power : float, default=1.0
        How much denser the low frequencies are sampled; 0 samples uniformly.

    Returns
    -------
    array of bool, of the given shape

    Examples
    --------
    >>> mask = mri_mask((64, 64), 1000, random_state=0)
    >>> partial_fourier(None, mask.shape, rows=mask)
    <1000 of 4096 rows of the DFT of 64×64 signals, scaled by 2.024, complex128>
    """
    shape = check_shape(shape, "shape")
    size = math.prod(shape)
    n = check_count(n, "n", high=size, high_text=f"the DFT of shape {shape} has no more rows")
    power = check_number(power, "power")
    clocks = check_generator(random_state).exponential(size=shape)
    clocks = np.minimum(clocks, np.roll(np.flip(clocks), 1, axis=range(len(shape))))
    grids = np.meshgrid(*(2 * np.fft.fftfreq(side) for side in shape), indexing="ij", sparse=True)
    radius = np.sqrt(sum(grid**2 for grid in grids))
    clocks *= (radius + 1 / max(shape)) ** power  # the n smallest are a weighted sample without replacement
    mask = np.zeros(size, np.bool_)
    mask[np.argsort(clocks, axis=None, kind="stable")[:n]] = True
    return mask.reshape(shape)


class WaveletSynthesis(LinearOperator):
    """Maps orthonormal wavelet coefficients to the signal; its adjoint is its inverse.  Made by `wavelet`."""

    def __init__(self, signal_shape: tuple[int, ...], name: str, level: int) -> None:
        size = math.prod(signal_shape)
        super().__init__(np.float64, (size, size))
        self.signal_shape = signal_shape
        self.name = name
        self.level = level

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.signal_shape))
        return f"<synthesis of {shape} signals from {self.name} wavelets, level {self.level}, {self.dtype}>"

    def _cube(self, X: NDArray[Any]) -> NDArray[Any]:
        return np.array(X, dtype=np.result_type(X, np.float64), order="C").reshape(*self.signal_shape, *X.shape[1:])

    def _corner(self, key: str, level: int) -> tuple[slice, ...]:
        """The slices of a part of a level, such as "ad": coarse in the first direction, detail in the second."""
        halves = [side >> level for side in self.signal_shape]
        return tuple(slice(h, 2 * h) if c == "d" else slice(0, h) for c, h in zip(key, halves, strict=True))

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        from pywt import idwtn

        cube, axes = self._cube(X), range(len(self.signal_shape))
        keys = ["".join("ad"[i >> a & 1] for a in axes) for i in range(2 ** len(axes))]
        for level in range(self.level, 0, -1):
            parts = {key: cube[self._corner(key, level)] for key in keys}
            cube[self._corner("a" * len(axes), level - 1)] = idwtn(parts, self.name, mode="periodization", axes=axes)
        return cube.reshape(X.shape)

    def _rmatmat(self, Y: NDArray[Any]) -> NDArray[Any]:
        from pywt import dwtn

        cube, axes = self._cube(Y), range(len(self.signal_shape))
        for level in range(1, self.level + 1):
            block = cube[self._corner("a" * len(axes), level - 1)]
            for key, part in dwtn(block, self.name, mode="periodization", axes=axes).items():
                cube[self._corner(key, level)] = part
        return cube.reshape(Y.shape)

    _matvec = _matmat
    _rmatvec = _rmatmat


def wavelet(shape: Shape, name: str = "db4", level: int | None = None) -> WaveletSynthesis:
    """The orthonormal synthesis operator W of a wavelet basis: W @ c is the signal, W.H @ signal the coefficients.

    A signal that is sparse in wavelets is recovered with ``A @ W`` in place of A.  Coefficients have the usual order:
    the coarsest first, in a corner of the image.  Needs the `sensing` extra.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the signal; every side must be a multiple of 2**level.
    name : str, default="db4"
        An orthonormal wavelet of PyWavelets: "haar", "db2" ... "db38", "sym2" ... "sym20", "coif1" ... "coif17".
    level : int, default=None
        How often the coarse part is split; by default as often as the sides can be halved while the wavelet fits.

    Returns
    -------
    WaveletSynthesis

    Examples
    --------
    >>> import numpy as np
    >>> W = wavelet(8, "haar")
    >>> W
    <synthesis of 8 signals from haar wavelets, level 3, float64>
    >>> (W.H @ np.array([1.0, 1, 1, 1, 2, 2, 2, 2])).round(2)
    array([ 4.24, -1.41,  0.  ,  0.  ,  0.  ,  0.  ,  0.  ,  0.  ])
    """
    try:
        import pywt
    except ImportError:
        raise ImportError("wavelets need PyWavelets; pip install 'ksparse[sensing]' brings it") from None
    shape = check_shape(shape, "shape")
    known = pywt.wavelist(kind="discrete")
    if name not in known or name == "dmey" or not pywt.Wavelet(name).orthogonal:  # dmey is truncated
        raise ValueError(f"name must be an orthonormal wavelet (haar, db2 to db38, sym, coif), got {name!r}")
    halvings = min((side & -side).bit_length() - 1 for side in shape)
    if level is None:
        level = max(min(1, halvings), min(halvings, pywt.dwtn_max_level(shape, name)))
    level = check_count(level, "level", low=0)
    if level > halvings:
        block = 2**level
        side = next(side for side in shape if side % block)
        near = " or ".join(str(side // block * block + up) for up in (0, block) if side // block * block + up)
        raise ValueError(
            f"shape must have sides divisible by 2**level = {block}, got {side}; the nearest is {near}, "
            f"or take level at most {halvings}"
        )
    return WaveletSynthesis(shape, name, level)


def adjoint_error(A: Any, random_state: Any = 0) -> float:
    """The relative difference of <Au, v> and <u, A^H v> for random u and v: only rounding if the adjoint is right.

    Parameters
    ----------
    A : array, sparse matrix or LinearOperator
    random_state : None, int or Generator, default=0
        For drawing u and v.

    Returns
    -------
    float

    Examples
    --------
    >>> adjoint_error(partial_dct(20, 64, random_state=0)) < 1e-14
    True
    """
    A, rng = aslinearoperator(A), check_generator(random_state)

    def draw(size: int) -> NDArray[Any]:
        u = rng.standard_normal(size)
        u = u + 1j * rng.standard_normal(size) if np.dtype(A.dtype).kind == "c" else u
        return u / np.linalg.norm(u)

    u, v = draw(A.shape[1]), draw(A.shape[0])
    with np.errstate(over="ignore", invalid="ignore"):  # NaN if A or its squares are not finite
        image = A.matvec(u)
        # without this term both products could be small by chance, the more so for large n
        v = v + image / (np.linalg.norm(image) or 1.0)
        back = A.rmatvec(v)
        size = max(np.linalg.norm(image) * np.linalg.norm(v), np.linalg.norm(back))
        return float(abs(np.vdot(image, v) - np.vdot(u, back)) / size) if size else 0.0


def check_shape(value: Any, name: str) -> tuple[int, ...]:
    """The shape of a signal as a tuple, from a length or a shape."""
    sides = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not sides:
        raise ValueError(f"{name} must be a length or a shape such as (64, 64), got {value!r}")
    return tuple(check_count(side, name) for side in sides)

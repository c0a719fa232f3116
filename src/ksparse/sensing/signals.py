"""Signals with exactly K non-zeros on a uniformly random support, and some that resemble signals of applications.

Every function in SIGNALS is called as f(d, K, *, random_state, dtype).  The same seed gives the same signal, bit for
bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._validate import check_count, check_generator, check_number
from .operators import Shape, wavelet


def gaussian(d: int, K: int, *, random_state: Any = None, dtype: DTypeLike = float) -> NDArray[Any]:
    """A signal with K non-zeros N(0, 1); complex: real and imaginary parts N(0, 1/2).

    Parameters
    ----------
    d, K : int
        Length of the signal and number of its non-zeros.
    random_state : None, int or Generator, default=None
        The same seed gives the same signal.
    dtype : dtype, default=float
        A real or complex floating-point type.

    Examples
    --------
    >>> gaussian(6, 3, random_state=1).round(2)
    array([ 0.  ,  0.91, -1.3 ,  0.  ,  0.45,  0.  ])
    """
    x, support, rng = _start(d, K, random_state, dtype)
    values = rng.standard_normal(K)
    x[support] = (values + 1j * rng.standard_normal(K)) / math.sqrt(2) if x.dtype.kind == "c" else values
    return x


def sign(d: int, K: int, *, random_state: Any = None, dtype: DTypeLike = float) -> NDArray[Any]:
    """A signal with K non-zeros ±1; complex: of modulus 1 with uniform phases.

    It is hard for greedy algorithms, because no entry is larger than the others.

    Parameters
    ----------
    d, K : int
        Length of the signal and number of its non-zeros.
    random_state : None, int or Generator, default=None
        The same seed gives the same signal.
    dtype : dtype, default=float
        A real or complex floating-point type.

    Examples
    --------
    >>> sign(6, 3, random_state=1)
    array([ 0.,  1., -1.,  0.,  1.,  0.])
    """
    x, support, rng = _start(d, K, random_state, dtype)
    x[support] = _phases(rng, K, x.dtype)
    return x


def uniform(d: int, K: int, *, random_state: Any = None, dtype: DTypeLike = float) -> NDArray[Any]:
    """A signal with K non-zeros of magnitudes uniform in [1, 2] and random signs (complex: uniform phases).

    The non-zeros are bounded away from zero, so that the support can be found under noise.

    Parameters
    ----------
    d, K : int
        Length of the signal and number of its non-zeros.
    random_state : None, int or Generator, default=None
        The same seed gives the same signal.
    dtype : dtype, default=float
        A real or complex floating-point type.

    Examples
    --------
    >>> uniform(6, 3, random_state=1).round(2)
    array([ 0.  , -1.31, -1.95,  0.  ,  1.42,  0.  ])
    """
    x, support, rng = _start(d, K, random_state, dtype)
    x[support] = rng.uniform(1.0, 2.0, K) * _phases(rng, K, x.dtype)
    return x


def decaying(d: int, K: int, *, random_state: Any = None, dtype: DTypeLike = float, power: float = 1.0) -> NDArray[Any]:
    """A signal with magnitudes 1, 2^-power, ..., K^-power at random places and random signs (complex: phases).

    It is easy for greedy algorithms, which find the large entries first, as long as noise does not hide the small ones.

    Parameters
    ----------
    d, K : int
        Length of the signal and number of its non-zeros.
    random_state : None, int or Generator, default=None
        The same seed gives the same signal.
    dtype : dtype, default=float
        A real or complex floating-point type.
    power : float, default=1.0
        How fast the magnitudes decay; at least 0.

    Examples
    --------
    >>> np.sort(np.abs(decaying(6, 4, random_state=0, power=2))).round(2)
    array([0.  , 0.  , 0.06, 0.11, 0.25, 1.  ])
    """
    power = check_number(power, "power")
    x, support, rng = _start(d, K, random_state, dtype)
    x[support] = np.arange(1.0, K + 1.0) ** -power * _phases(rng, K, x.dtype)
    if np.count_nonzero(x) < K:
        raise ValueError(f"power must be so small that K^-power is not zero in {x.dtype}, got {power:g} for K = {K}")
    return x


SIGNALS: dict[str, Callable[..., NDArray[Any]]] = {
    "gaussian": gaussian,
    "sign": sign,
    "uniform": uniform,
    "decaying": decaying,
}


def wavelet_sparse(
    shape: Shape,
    K: int,
    *,
    random_state: Any = None,
    dtype: DTypeLike = float,
    name: str = "db4",
    level: int | None = None,
) -> NDArray[Any]:
    """A signal or image with exactly K non-zero coefficients, N(0, 1), in an orthonormal wavelet basis.

    ``wavelet(shape, name, level).H @ x.ravel()`` are the coefficients.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the signal; every side must be a multiple of 2**level.
    K : int
        Number of non-zero coefficients.
    random_state : None, int or Generator, default=None
        The same seed gives the same signal.
    dtype : dtype, default=float
        A real or complex floating-point type.
    name : str, default="db4"
        An orthonormal wavelet of PyWavelets.
    level : int, default=None
        How often the coarse part is split; see `operators.wavelet`.

    Examples
    --------
    >>> wavelet_sparse((16, 16), 10, random_state=0, name="haar").shape
    (16, 16)
    """
    W = wavelet(shape, name, level)
    return (W @ gaussian(W.shape[1], K, random_state=random_state, dtype=dtype)).reshape(W.signal_shape)


# height in tenths, semi-axes, centre, angle in degrees: the ten ellipses of Shepp and Logan, contrast of Toft (1996)
ELLIPSES = (
    (10, 0.69, 0.92, 0.0, 0.0, 0.0),
    (-8, 0.6624, 0.874, 0.0, -0.0184, 0.0),
    (-2, 0.11, 0.31, 0.22, 0.0, -18.0),
    (-2, 0.16, 0.41, -0.22, 0.0, 18.0),
    (1, 0.21, 0.25, 0.0, 0.35, 0.0),
    (1, 0.046, 0.046, 0.0, 0.1, 0.0),
    (1, 0.046, 0.046, 0.0, -0.1, 0.0),
    (1, 0.046, 0.023, -0.08, -0.605, 0.0),
    (1, 0.023, 0.023, 0.0, -0.606, 0.0),
    (1, 0.023, 0.046, 0.06, -0.605, 0.0),
)


def phantom(size: int) -> NDArray[np.float64]:
    """The modified Shepp–Logan phantom of a head, an image with values from 0 to 1.

    Parameters
    ----------
    size : int
        The image has size × size pixels.

    Examples
    --------
    >>> np.unique(phantom(128))
    array([0. , 0.1, 0.2, 0.3, 0.4, 1. ])
    """
    size = check_count(size, "size")
    side = (2 * np.arange(size) + 1) / size - 1  # centres of pixels
    x, y = side[None, :], -side[:, None]
    image = np.zeros((size, size))  # in tenths, whose sums have no rounding error
    for height, a, b, x0, y0, degrees in ELLIPSES:
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        along, across = (x - x0) * cos + (y - y0) * sin, (y - y0) * cos - (x - x0) * sin
        image[(along / a) ** 2 + (across / b) ** 2 <= 1] += height
    return image / 10


# P, Q, R, S, T: height (mV), angle and width (in radians of a beat, at 60 beats per minute)
WAVES = (
    (0.15, -math.pi / 3, 0.25),
    (-0.12, -math.pi / 12, 0.1),
    (1.2, 0.0, 0.1),
    (-0.25, math.pi / 12, 0.1),
    (0.3, math.pi / 2, 0.4),
)


def ecg(
    samples: int, *, rate: float = 360.0, heart_rate: float = 72.0, random_state: Any = None
) -> NDArray[np.float64]:
    """A synthetic electrocardiogram in millivolts: five Gaussian waves (P, Q, R, S, T) per beat.

    The beats vary in length.  The waves are those of McSharry, Clifford, Tarassenko and Smith (2003), summed instead of
    integrated.

    Parameters
    ----------
    samples : int
        Length of the signal.
    rate : float, default=360.0
        Samples per second.
    heart_rate : float, default=72.0
        Beats per minute on average; they vary with breathing (4%) and at random (2%).
    random_state : None, int or Generator, default=None
        For the lengths of the beats and the phase of the first one.

    Examples
    --------
    >>> x = ecg(3600, random_state=0)  # ten seconds
    >>> round(float(x.max()), 1)
    1.2
    """
    samples = check_count(samples, "samples")
    rate = check_number(rate, "rate", strict=True)
    heart_rate = check_number(heart_rate, "heart_rate", strict=True)
    rng = check_generator(random_state)
    mean, seconds = 60.0 / heart_rate, samples / rate
    beats = math.ceil(1.3 * seconds / mean) + 3
    breathing = np.sin(2 * np.pi * 0.25 * mean * np.arange(beats))
    lengths = mean * (1 + 0.04 * breathing + 0.02 * np.clip(rng.standard_normal(beats), -3, 3))
    starts = np.concatenate([[0.0], np.cumsum(lengths)]) - mean * rng.uniform()
    angle = 2 * np.pi * np.interp(np.arange(samples) / rate, starts, np.arange(beats + 1.0)) - np.pi
    angle = np.mod(angle + np.pi, 2 * np.pi) - np.pi
    quick = math.sqrt(heart_rate / 60.0)  # waves get shorter by less than beats do
    signal = np.zeros(samples)
    for height, centre, width in WAVES:
        away = np.mod(angle - centre * quick + np.pi, 2 * np.pi) - np.pi
        signal += height * np.exp(-0.5 * (away / (width * quick)) ** 2)
    return signal


def _start(d: Any, K: Any, random_state: Any, dtype: Any) -> tuple[NDArray[Any], NDArray[Any], np.random.Generator]:
    d = check_count(d, "d")
    K = check_count(K, "K", low=0, high=d, high_text="the length of the signal")
    try:
        kind = np.dtype(dtype)
        if kind.kind not in "fc":
            raise TypeError
    except TypeError:
        raise ValueError(f"dtype must be float or complex, of any precision, got {dtype!r}") from None
    rng = check_generator(random_state)
    return np.zeros(d, kind), rng.choice(d, K, replace=False), rng


def _phases(rng: np.random.Generator, K: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.exp(2j * np.pi * rng.uniform(size=K)) if dtype.kind == "c" else 2.0 * rng.integers(0, 2, K) - 1.0

"""Signals with exactly K non-zeros on a uniformly random support, and some that look like those of practice.

Every one of SIGNALS is a function f(d, K, *, random_state, dtype); the same seed gives the same signal, bit for bit.
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
    """Non-zeros N(0, 1); complex: real and imaginary parts N(0, 1/2).

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
    """Non-zeros ±1; complex: of modulus 1 with uniform phases.  Hard for greedy algorithms: no entry stands out.

    Examples
    --------
    >>> sign(6, 3, random_state=1)
    array([ 0.,  1., -1.,  0.,  1.,  0.])
    """
    x, support, rng = _start(d, K, random_state, dtype)
    x[support] = _phases(rng, K, x.dtype)
    return x


def uniform(d: int, K: int, *, random_state: Any = None, dtype: DTypeLike = float) -> NDArray[Any]:
    """Magnitudes uniform in [1, 2], random signs (complex: uniform phases).

    Bounded away from zero, so that it makes sense to ask for the support under noise.

    Examples
    --------
    >>> uniform(6, 3, random_state=1).round(2)
    array([ 0.  , -1.31, -1.95,  0.  ,  1.42,  0.  ])
    """
    x, support, rng = _start(d, K, random_state, dtype)
    x[support] = rng.uniform(1.0, 2.0, K) * _phases(rng, K, x.dtype)
    return x


def decaying(d: int, K: int, *, random_state: Any = None, dtype: DTypeLike = float, power: float = 1.0) -> NDArray[Any]:
    """Magnitudes 1, 2^-power, ..., K^-power at random places, random signs (complex: uniform phases).

    Easy for greedy algorithms, which find the large entries first, as long as noise does not hide the small ones.

    Examples
    --------
    >>> np.sort(np.abs(decaying(6, 4, random_state=0, power=2))).round(2)
    array([0.  , 0.  , 0.06, 0.11, 0.25, 1.  ])
    """
    power = check_number(power, "power")
    x, support, rng = _start(d, K, random_state, dtype)
    x[support] = np.arange(1.0, K + 1.0) ** -power * _phases(rng, K, x.dtype)
    if np.count_nonzero(x) < K:
        raise ValueError(f"power must be so small that K^-power is no zero in {x.dtype}, got {power:g} for K = {K}")
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
    shape, name, level : as for `operators.wavelet`
    K, random_state, dtype : as for the signals above

    Examples
    --------
    >>> wavelet_sparse((16, 16), 10, random_state=0, name="haar").shape
    (16, 16)
    """
    W = wavelet(shape, name, level)
    return (W @ gaussian(W.shape[1], K, random_state=random_state, dtype=dtype)).reshape(W.signal_shape)


# height in tenths, half axes, centre, degrees: the ten ellipses of Shepp and Logan with the contrast of Toft (1996)
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
    """The modified Shepp–Logan phantom of a head, size × size, with values from 0 to 1.

    Examples
    --------
    >>> np.unique(phantom(128))
    array([0. , 0.1, 0.2, 0.3, 0.4, 1. ])
    """
    size = check_count(size, "size")
    side = (2 * np.arange(size) + 1) / size - 1  # centres of pixels
    x, y = side[None, :], -side[:, None]
    image = np.zeros((size, size))  # tenths, which sum without rounding
    for height, a, b, x0, y0, degrees in ELLIPSES:
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        along, across = (x - x0) * cos + (y - y0) * sin, (y - y0) * cos - (x - x0) * sin
        image[(along / a) ** 2 + (across / b) ** 2 <= 1] += height
    return image / 10


# P, Q, R, S, T: height (mV), angle and width (radians of a beat at 60 a minute)
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
    """A synthetic electrocardiogram in millivolts: five Gaussian waves a beat (P, Q, R, S, T), beats of varying length.

    The waves are those of McSharry, Clifford, Tarassenko and Smith (2003), summed instead of integrated.

    Parameters
    ----------
    samples : int
    rate : float
        Samples a second.
    heart_rate : float
        Beats a minute on average; they vary by breathing (4%) and at random (2%).
    random_state : None, int or Generator
        For the beats' lengths and the first one's phase.

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
    quick = math.sqrt(heart_rate / 60.0)  # waves shorten by less than beats do
    signal = np.zeros(samples)
    for height, centre, width in WAVES:
        away = np.mod(angle - centre * quick + np.pi, 2 * np.pi) - np.pi
        signal += height * np.exp(-0.5 * (away / (width * quick)) ** 2)
    return signal


def _start(d: Any, K: Any, random_state: Any, dtype: Any) -> tuple[NDArray[Any], NDArray[Any], np.random.Generator]:
    d = check_count(d, "d")
    K = check_count(K, "K", low=0, high=d, high_text="a signal of d entries has no more non-zeros")
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

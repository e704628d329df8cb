"""Names for the kinds of arrays that are passed around."""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Pixels = npt.NDArray[np.uint8]

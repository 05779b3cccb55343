"""Arrays in these tests are small: threads of BLAS would only fight each other and the workers of pytest-xdist."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

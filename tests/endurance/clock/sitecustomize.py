"""A wall clock that is off, in every Python whose path begins with this folder; see service.environment."""

import os
import time

_real, _shift = time.time, int(os.environ["ENDURANCE_SHIFT"])
time.time = lambda: _real() + _shift

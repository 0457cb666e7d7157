"""The verification suite: what runs *inside* a container, or on a bare shell, and proves that it works.

Runs on Python 3.8 and newer with the standard library alone (beside the framework under test), imports nothing of
the rest of gpuimg, and uses relative imports only, so that the same package is zipped into one file
(:mod:`.pack`) and copied anywhere.

Reading order: :mod:`.registry` (what a check is), :mod:`.runner` (each check in its own process), :mod:`.profiles`
(which checks, which floors), then the ``checks_*`` modules; ``judge_*`` are the pure rules they apply.
"""

from __future__ import annotations

import time

SUITE_VERSION = "1.0.0"
STARTED = time.time()
"""When this process began to import the suite: its own cost counts from here."""

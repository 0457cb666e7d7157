"""Facts and health of a GPU server, from whatever people paste: see ``detect`` for the forms that are read."""

from gpuimg.host.detect import parse_host

__all__ = ["parse_host"]

"""``python -m gpuimg``."""

from gpuimg.cli import main

if __name__ == "__main__":
    main()

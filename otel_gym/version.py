"""The version, the same in the package's metadata and on every span's scope."""

__version__ = "0.1.0"

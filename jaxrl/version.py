"""The version of jaxrl and the address of its repository, each written once."""

__version__ = "0.1.0"
REPOSITORY = "https://github.com/jaxrl/jaxrl"

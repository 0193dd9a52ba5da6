"""The version of jaxrl and the address of its repository, which other files repeat, as tests check."""

__version__ = "0.1.0"
REPOSITORY: str = ""  # its address, which is empty until the project has published itself there

"""Memory, processors and compilation of the machine at hand."""

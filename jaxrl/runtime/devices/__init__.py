"""What is known of the devices and their compiler: processors, XLA flags, the compilation cache."""

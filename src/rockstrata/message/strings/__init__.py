"""Text and properties, as kernels read them."""

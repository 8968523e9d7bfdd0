"""Words of memory, as kernels read and write them."""
